"use strict";
/* Notes on slices and ranges: written here, kept with the run, drawn on the timeline, each with an address. */
(function () {
  const { TimelineTools, element } = window.chakrascopeTimeline;
  const { durationText, instantText } = window.chakrascopeUnits;

  class TimelineNotes extends TimelineTools {
    shown() {
      super.shown();
      this.loadNotes();
    }

    openTab(name) {
      super.openTab(name);
      if (name === "notes" && this.isLoaded) { this.showNotes(); }
    }

    async loadNotes() {
      const run = this.run, reply = await fetch(`./api/notes?${this.query({})}`);
      if (run === this.run && (reply.ok || reply.status === 409)) { this.take(await reply.json()); }
    }

    /* Tell the server of a note, or of one that is to go, and show what it keeps then. */
    async changeNotes(change) {
      const headers = { "Content-Type": "application/json" };
      const reply = await fetch(`./api/notes?${this.query({})}`, { method: "POST", headers, body: JSON.stringify(change) });
      const isAnswer = reply.ok || reply.status === 409;
      this.take(isAnswer ? await reply.json() : { problem: `The server answered ${reply.status}; nothing was kept.` });
      return reply.ok;
    }

    take(found) {
      this.notes = found.notes || this.notes || [];
      this.refusal = found.problem || "";
      this.holder.dataset.notes = this.notes.length;
      if (this.tab === "notes") { this.showNotes(); }
      this.draw();
    }

    /* Return what a new note would be about: what is marked, or else selected, or else the window. */
    noteSubject() {
      const node = this.selected, area = this.area;
      if (area) { return { words: `the marked ${durationText(Math.round(area.t1 - area.t0))}`, t0: Math.round(area.t0), t1: Math.round(area.t1) }; }
      if (node && node.lane >= 0) { return { words: `node ${node.node} of rank ${node.rank}`, t0: node.start_ns, t1: node.end_ns, rank: node.rank, node: node.node }; }
      return { words: "the window shown", t0: Math.round(this.t0), t1: Math.round(this.t1) };
    }

    writeNote() {
      this.openTab("notes");
      const input = document.getElementById("timeline-note-text");
      if (input) { input.focus(); }
    }

    showNotes() {
      const out = document.getElementById("timeline-notes"), subject = this.noteSubject();
      if (!out) { return; }
      const typed = document.getElementById("timeline-note-text"), written = typed ? typed.value : "", focused = typed === document.activeElement;
      const form = element("form", null, "note-form"), input = element("input", null, "timeline-input", { id: "timeline-note-text", type: "text", value: written, maxLength: 4000, placeholder: `a note on ${subject.words}` });
      input.setAttribute("aria-label", `A note on ${subject.words}`);
      input.addEventListener("keydown", (event) => { if (event.key === "Escape") { event.preventDefault(); this.canvas.focus({ preventScroll: true }); } });
      form.append(input, element("button", "Keep", "timeline-button", { type: "submit" }));
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        const { words, ...about } = subject;
        if (await this.changeNotes({ text: input.value, ...about })) { document.getElementById("timeline-note-text").value = ""; this.canvas.focus({ preventScroll: true }); }
      });
      const problem = this.refusal ? [element("p", this.refusal, "note-problem", { role: "alert" })] : [];
      const items = (this.notes || []).map((note) => this.noteItem(note));
      const listed = element("ul", null, "note-list");
      listed.append(...items);
      out.replaceChildren(form, ...problem, items.length ? listed : element("p", "No notes yet: mark a range or select a slice, and press T. They are kept with the run, and stand in its report."));
      if (focused) { input.focus(); }
    }

    noteItem(note) {
      const item = element("li"), where = note.node >= 0 ? `${note.about || "node"} (node ${note.node} of rank ${note.rank})` : `${instantText(note.t0_ns)} to ${instantText(note.t1_ns)}`;
      const room = Math.max(200, 0.3 * (note.t1_ns - note.t0_ns)), query = new URLSearchParams(window.location.search);
      for (const [name, value] of Object.entries({ run: this.run, t0: Math.round(note.t0_ns - room), t1: Math.round(note.t1_ns + room) })) { query.set(name, value); }
      for (const name of ["rank", "node"]) { if (note.node >= 0) { query.set(name, note[name]); } else { query.delete(name); } }
      const link = element("a", where, "text-link", { href: `./timeline?${query}` });
      link.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) { return; }
        event.preventDefault();
        this.window(note.t0_ns - room, note.t1_ns + room);
        if (note.node >= 0) { this.choose(note.rank, note.node).then(() => this.openTab("notes")); }
      });
      const remove = element("button", "Remove", "timeline-button", { type: "button", onclick: () => this.changeNotes({ remove: note.id }) });
      remove.setAttribute("aria-label", `Remove the note: ${note.text.slice(0, 60)}`);
      item.append(link, " ", element("span", note.text, "note-text"), " ", remove);
      return item;
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineNotes });
})();
