/* The timeline's controls above the canvas, and the legend of its colours. */
import { element, labelled } from "./dom.js";
import { ranksOf } from "./ranks.js";

const CHOICES = {
  rows: ["Rows", { "": "auto", nested: "nested", flat: "streams" }],
  colour: ["Colour", { kind: "kind", operator: "operator", module: "module", stream: "stream" }],
  order: ["Ranks by", { rank: "number", finish: "finish", exposed: "exposed comm.", waiting: "waiting" }],
};
const MOST_NAME = 40;

export class Tools {
  constructor(timeline) {
    this.timeline = timeline;
    this.controls = {};
    const choices = Object.entries(CHOICES).map(([name, [title, options]]) => this.choice(name, title, options));
    const fold = this.box("same", "timeline-same", "equal ranks", { on: "", off: "apart" });
    const foldEmpty = this.box("empty", "timeline-empty", "empty rows", { on: "folded", off: "" });
    fold.title = "one row for equal ranks";
    foldEmpty.title = "fold rows without slices in the window";
    document.getElementById("timeline-tools").replaceChildren(timeline.search.element, ...choices, this.rankFilter(), "Fold", fold, foldEmpty);
    const measured = this.box("measured", "timeline-measured", timeline.readsCalls ? "Measured rows" : "Measured, with host calls", { on: "1", off: "" });
    this.controls.measured.disabled = !timeline.isMeasured;
    if (!timeline.isMeasured) { measured.title = "this workload was not captured"; }
    const boxes = timeline.readsCalls ? [this.callsBox(), measured] : [measured];
    document.getElementById("timeline-beside").before(...boxes);
  }

  /* Return the box of the host calls of a small capture, which are shown unless the setting of measured rows is "0". */
  callsBox() {
    const box = element("input", null, "", { id: "timeline-calls", type: "checkbox", onchange: () => this.timeline.set("measured", box.checked ? "" : "0") });
    const label = element("label", null, "timeline-control");
    this.callsStatus = element("span", " Host calls", "", { role: "status" });
    label.append(box, this.callsStatus);
    this.calls = box;
    return label;
  }

  /* Show next to the box whether the host calls are being read. */
  noteCalls(text) { this.callsStatus.textContent = ` Host calls${text}`; }

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

  /* Return a box to tick; *on* and *off* are the setting's values. */
  box(name, id, title, { on, off }) {
    const box = element("input", null, "", { id, type: "checkbox", onchange: () => this.timeline.set(name, box.checked ? on : off) });
    const label = element("label", null, "timeline-control");
    label.append(box, ` ${title}`);
    this.controls[name] = Object.assign(box, { value: on });
    return label;
  }

  /* Show in the controls what is set, but leave alone what somebody is typing into. */
  shown() {
    for (const [name, control] of Object.entries(this.controls)) {
      const value = this.timeline.settings[name];
      if (control.type === "checkbox") { control.checked = value === control.value && !control.disabled; }
      else if (control !== document.activeElement) { control.value = value; }
    }
    if (this.calls) { this.calls.checked = this.timeline.settings.measured !== "0"; }
    const { legend, more } = this.timeline.main, out = document.getElementById("timeline-legend");
    const rest = more ? [element("span", `and ${more.toLocaleString("en")} more, whose colours repeat these`, "legend-item")] : [];
    out.replaceChildren(...legend.map(legendItem), ...rest);
  }
}

function legendItem([name, colour]) {
  const item = element("span", null, "legend-item"), box = element("i");
  box.style.background = colour;
  item.append(box, name.length > MOST_NAME ? `${name.slice(0, MOST_NAME - 1)}…` : name);
  return item;
}
