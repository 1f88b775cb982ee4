/* Notes on slices and time ranges, which the server stores with the run. */
import { button, element } from "./dom.js";

const { durationText, instantText } = window.chakrascopeUnits;
const MAX_CHARACTERS = 4000;
const EMPTY = "No notes yet: mark a range or select a slice, and press T. They are stored with the run, and appear in its report.";

export class Notes {
  constructor(timeline) { Object.assign(this, { timeline, all: [], problem: "" }); }

  get url() { return `./api/notes?${this.timeline.query({})}`; }

  async load() {
    const { run } = this.timeline, reply = await fetch(this.url);
    if (run === this.timeline.run && this.timeline.isShown && (reply.ok || reply.status === 409)) { this.take(await reply.json()); }
  }

  /* Send a new note, or the id of a note to remove, to the server, and show the resulting notes. */
  async change(change) {
    const headers = { "Content-Type": "application/json" };
    const reply = await fetch(this.url, { method: "POST", headers, body: JSON.stringify(change) });
    const isAnswer = reply.ok || reply.status === 409;
    this.take(isAnswer ? await reply.json() : { problem: `The server answered ${reply.status}; nothing was saved.` });
    return reply.ok;
  }

  take({ notes, problem }) {
    this.all = notes || this.all;
    this.problem = problem || "";
    this.timeline.holder.dataset.notes = this.all.length;
    if (this.timeline.panel.tab === "notes") { this.show(); }
    this.timeline.draw();
  }

  /* Return the subject of a new note: the marked area, else the selected slice, else the current window. */
  subject() {
    const { area, selection: { node }, view } = this.timeline;
    if (area) { return { words: `the marked ${durationText(Math.round(area.t1 - area.t0))}`, t0: Math.round(area.t0), t1: Math.round(area.t1) }; }
    if (node && node.lane >= 0) { return { words: `node ${node.node} of rank ${node.rank}`, t0: node.start_ns, t1: node.end_ns, rank: node.rank, node: node.node }; }
    return { words: "the window shown", t0: Math.round(view.t0), t1: Math.round(view.t1) };
  }

  get input() { return document.getElementById("timeline-note-text"); }

  write() {
    this.timeline.panel.open("notes");
    this.input.focus();
  }

  show() {
    const before = this.input, isFocused = Boolean(before) && before === document.activeElement;
    const problem = this.problem ? [element("p", this.problem, "note-problem", { role: "alert" })] : [];
    const listed = element("ul", null, "note-list");
    listed.append(...this.all.map((note) => this.item(note)));
    this.timeline.panel.part("notes").replaceChildren(this.form(before ? before.value : ""), ...problem, this.all.length ? listed : element("p", EMPTY));
    if (isFocused) { this.input.focus(); }
  }

  form(value) {
    const { words, ...about } = this.subject(), form = element("form", null, "note-form"), { timeline } = this;
    const input = element("input", null, "timeline-input", { id: "timeline-note-text", type: "text", value, maxLength: MAX_CHARACTERS, placeholder: `a note on ${words}` });
    input.setAttribute("aria-label", `A note on ${words}`);
    input.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); timeline.focus(); } });
    form.append(input, element("button", "Keep", "timeline-button", { type: "submit" }));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (await this.change({ text: input.value, measured: timeline.main.measured, ...about })) { this.input.value = ""; timeline.focus(); }
    });
    return form;
  }

  /* Return whether a note is on an interval of measured times while the rows have simulated times, or the reverse. */
  isElsewhere(note) { return note.node < 0 && note.measured !== null && note.measured !== this.timeline.main.measured; }

  item(note) {
    const { timeline } = this, item = element("li"), isNode = note.node >= 0, isElsewhere = this.isElsewhere(note), room = Math.max(200, 0.3 * (note.t1_ns - note.t0_ns));
    const where = isNode ? `${note.about || "node"} (node ${note.node} of rank ${note.rank})` : `${instantText(note.t0_ns)} to ${instantText(note.t1_ns)}${isElsewhere ? `, ${note.measured ? "measured" : "simulated"} times` : ""}`;
    const query = new URLSearchParams(window.location.search), measured = note.measured ? "1" : "0";
    if (isElsewhere) { query.set("measured", measured); }
    for (const [name, value] of Object.entries({ run: timeline.run, t0: Math.round(note.t0_ns - room), t1: Math.round(note.t1_ns + room) })) { query.set(name, value); }
    for (const name of ["rank", "node"]) { if (isNode) { query.set(name, note[name]); } else { query.delete(name); } }
    const link = element("a", where, "text-link", { href: `./timeline?${query}` });
    link.addEventListener("click", async (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) { return; }
      event.preventDefault();
      if (isElsewhere) { await timeline.set("measured", measured); }
      timeline.view.window(note.t0_ns - room, note.t1_ns + room);
      if (isNode) { timeline.selection.choose(note.rank, note.node).then(() => timeline.panel.open("notes")); }
    });
    const remove = button("Remove", () => this.change({ remove: note.id }));
    remove.setAttribute("aria-label", `Remove the note: ${note.text.slice(0, 60)}`);
    item.append(link, " ", element("span", note.text, "note-text"), " ", remove);
    return item;
  }
}
