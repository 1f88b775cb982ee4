/* The controls above the canvas, the colour legend, and the search of the timeline. */
import { rangesText, ranksOf } from "./address.js";
import { button, element, labelled } from "./dom.js";
import { ask } from "./server.js";

const CHOICES = {
  rows: ["Rows", { "": "auto", nested: "nested", flat: "streams" }],
  colour: ["Colour", { kind: "kind", operator: "operator", module: "module", stream: "stream" }],
  order: ["Ranks by", { rank: "number", finish: "finish", exposed: "exposed comm.", waiting: "waiting" }],
};
const MAX_NAME = 40;

export class Tools {
  constructor(timeline) {
    this.timeline = timeline;
    this.controls = {};
    const choices = Object.entries(CHOICES).map(([name, [title, options]]) => this.choice(name, title, options));
    const fold = this.box("same", "timeline-same", "equal ranks", { on: "", off: "apart" });
    const foldEmpty = this.box("empty", "timeline-empty", "empty rows", { on: "folded", off: "" });
    const foldToFit = this.box("fit", "timeline-fit", "to fit", { on: "", off: "off" });
    fold.title = "one row for equal ranks";
    foldEmpty.title = "fold rows without slices in the window";
    this.folded = element("span", "");
    foldToFit.append(this.folded);
    foldToFit.title = "fold deep rows, or shorten rows, so that all ranks are in sight";
    document.getElementById("timeline-tools").replaceChildren(timeline.search.element, ...choices, this.rankFilter(), "Fold", fold, foldEmpty, foldToFit);
    const { measured: isMeasured, calls: showsCalls } = timeline.holder.dataset;
    const usual = (value) => (value === "1" ? { on: "", off: "0" } : { on: "1", off: "" });
    const measured = this.box("measured", "timeline-measured", "Measured times", usual(isMeasured));
    measured.title = isMeasured ? "show the measured instead of the simulated times" : "this workload was not captured";
    const calls = this.box("calls", "timeline-calls", "Host calls", usual(showsCalls));
    calls.title = showsCalls ? "show the calls of host threads, at measured times" : "the device traces are missing";
    this.callsStatus = element("span", "", "", { role: "status" });
    calls.append(this.callsStatus);
    document.getElementById("timeline-beside").before(measured, calls);
  }

  /* Show the progress of reading the host calls next to their checkbox. */
  noteCalls(text) { this.callsStatus.textContent = text; }

  /* Show next to its checkbox whether rows are folded to fit so far that host calls have no row. */
  noteFolded(hidesCalls) { this.folded.textContent = hidesCalls ? "(hides host calls)" : ""; }

  choice(name, title, options) {
    const select = element("select", null, "timeline-input", { id: `timeline-${name}`, onchange: () => { this.timeline.set(name, select.value); this.timeline.focus(); } });
    for (const [value, text] of Object.entries(options)) { select.append(element("option", text, "", { value })); }
    this.controls[name] = select;
    return labelled(title, select);
  }

  rankFilter() {
    const input = element("input", null, "timeline-input timeline-ranks", { id: "timeline-filter", type: "text", placeholder: "all", title: "such as 0-3, 16" });
    input.addEventListener("input", () => {
      const isRead = !input.value.trim() || ranksOf(input.value) !== null;
      input.setAttribute("aria-invalid", String(!isRead));
      if (isRead) { this.timeline.set("ranks", input.value.trim()); }
    });
    this.controls.ranks = input;
    return labelled("Ranks", input);
  }

  /* Return a checkbox with a label; *on* and *off* are the values of the checkbox's setting. */
  box(name, id, title, { on, off }) {
    const box = element("input", null, "", { id, type: "checkbox", onchange: () => this.timeline.set(name, box.checked ? on : off) });
    const label = element("label", null, "timeline-control");
    label.append(box, ` ${title}`);
    this.controls[name] = Object.assign(box, { value: on });
    return label;
  }

  /* Update the controls to the current settings, except for a field with the focus. */
  shown() {
    for (const [name, control] of Object.entries(this.controls)) {
      const value = this.timeline.settings[name];
      if (control.type === "checkbox") { control.checked = value === control.value; }
      else if (control !== document.activeElement) { control.value = value; }
    }
    const { measured, calls } = this.controls, { timeline, timeline: { holder: { dataset } } } = this;
    Object.assign(measured, { checked: timeline.showsMeasured, disabled: !dataset.measured });
    Object.assign(calls, { checked: timeline.wantsCalls, disabled: !dataset.calls || !timeline.showsMeasured });
    const { legend, more } = timeline.main, out = document.getElementById("timeline-legend");
    const rest = more ? [element("span", `and ${more.toLocaleString("en")} more, whose colours repeat these`, "legend-item")] : [];
    out.replaceChildren(...legend.map(legendItem), ...rest);
  }
}

function legendItem([name, colour]) {
  const item = element("span", null, "legend-item"), box = element("i");
  box.style.background = colour;
  item.append(box, name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name);
  return item;
}

/* The search of the timeline, which marks all matches and steps through the matches. */
const FIND_DELAY_MS = 200;

export class Search {
  constructor(timeline) {
    // *hits* holds the number of matches and the current match; null until the server has answered.
    Object.assign(this, { timeline, hits: null, timer: 0 });
    this.input = element("input", null, "timeline-input", { id: "timeline-find", type: "search", placeholder: "search ( / )", autocomplete: "off", spellcheck: false });
    this.input.setAttribute("aria-label", "Search the timeline");
    this.input.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.seek(this.input.value.trim()), FIND_DELAY_MS); });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.count = element("span", "", "timeline-found", { id: "timeline-found", role: "status" });
    const arrow = (text, words, way) => button(text, () => timeline.next(() => this.step(way)), { title: words, ariaLabel: words });
    this.element = element("div", null, "timeline-find");
    this.element.append(this.input, arrow("‹", "previous hit", -1), arrow("›", "next hit", 1), this.count);
  }

  get text() { return this.timeline.settings.seek; }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      clearTimeout(this.timer);
      this.timeline.next(() => this.step(event.shiftKey ? -1 : 1, this.input.value.trim()));
    } else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); this.stop(); this.timeline.focus(); }
  }

  focus() { this.input.focus(); this.input.select(); }

  /* Update the search field to the search text of the address, unless the field has the focus. */
  shown() {
    if (this.input !== document.activeElement) { this.input.value = this.text; }
    if (this.text && !this.hits) { this.seek(this.text); }
  }

  /* Mark all slices that match *text*, and show the number of matches. */
  async seek(text) {
    const { timeline } = this;
    if (!timeline.isLoaded) { return; }
    timeline.settings.seek = text;
    this.hits = null;
    timeline.refresh();
    if (!text) { this.count.textContent = ""; delete timeline.holder.dataset.found; return; }
    const hits = await this.ask({});
    if (this.text === text && hits) { this.show({ ...hits, at: -1 }); }
  }

  ask(where) {
    const { rows, main } = this.timeline;
    return ask("seek", this.timeline.query({ seek: this.text, ranks: rangesText(rows.representatives(main)), ...where }));
  }

  /* Select the next or previous match, starting with the first match in the window. */
  async step(way, text) {
    const { timeline } = this;
    if (text !== undefined && text !== this.text) { await this.seek(text); }
    if (!this.text || !timeline.isLoaded) { return; }
    if (!this.hits) { await this.seek(this.text); }
    const isFirst = !this.hits || this.hits.at < 0, count = isFirst ? 0 : this.hits.count;
    const hits = await this.ask(isFirst ? { t0: Math.round(timeline.view.t0) } : { at: (this.hits.at + way + count) % Math.max(1, count) });
    if (!hits) { return; }
    this.show({ ...hits, at: hits.count ? hits.at : -1 });
    if (hits.count) { await timeline.selection.choose(hits.rank, hits.node); }
  }

  show(hits) {
    const { count, at, ranks } = hits, where = ranks ? ` in ${ranks} ranks` : "", number = (value) => value.toLocaleString("en");
    this.hits = hits;
    this.count.textContent = (count ? (at < 0 ? `${number(count)} found` : `${number(at + 1)} of ${number(count)}`) : "nothing found") + where;
    this.count.title = where ? "Large runs are searched a few ranks at a time: enter ranks under Ranks to search these." : "";
    this.timeline.holder.dataset.found = `${at + 1}/${count}`;
  }

  stop() {
    clearTimeout(this.timer);
    this.input.value = "";
    this.seek("");
  }
}
