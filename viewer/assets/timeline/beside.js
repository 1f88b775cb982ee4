/* Another step of this run, or another run or capture, also of another study, in the same view: its rows below those of
   the same rank, on one clock. */
import { button, element, labelled } from "./dom.js";

const { durationText, instantText, changeText } = window.chakrascopeUnits;
const MOST_NAME = 16;

export class Beside {
  constructor(timeline) {
    this.timeline = timeline;
    this.select = element("select", null, "timeline-input", { id: "timeline-beside-run", onchange: () => { timeline.settings.align = ""; timeline.set("beside", this.select.value); } });
    this.buttons = [
      button("Align slices", () => this.alignSlices(), { id: "timeline-align" }), button("Align starts", () => this.alignBy(""), { id: "timeline-starts" }),
    ];
    document.getElementById("timeline-beside").replaceChildren(labelled("Beside", this.select), " ", this.buttons[0], " ", this.buttons[1]);
    this.offer([]);
  }

  get wanted() { return this.timeline.settings.beside; }

  /* A step of the run shown is the same run, moved in time so that the step begins where the first does. */
  get step() { return this.wanted.startsWith("@") ? Number(this.wanted.slice(1)) : null; }
  get run() { return this.step === null ? this.wanted : this.timeline.run; }

  /* The label of its rows: another study's name, if they are of one. */
  get name() {
    const study = this.run.includes("@") ? this.run.slice(0, this.run.lastIndexOf("@")) : "";
    return study.length > MOST_NAME ? `${study.slice(0, MOST_NAME - 1)}…` : study || "beside";
  }

  shown() { this.offer(this.timeline.main.steps || []); }

  /* Offer the steps of this run if it has several, then the other runs and captures, study by study. */
  offer(steps) {
    const { wanted, select } = this, groups = JSON.parse(this.timeline.holder.dataset.beside || "[]");
    if (steps.length > 1) {
      groups.unshift({ group: "Steps of this run", items: steps.slice(1).map(({ step }) => ({ value: `@${step}`, label: `step ${step}` })) });
    }
    const isOffered = groups.some(({ items }) => items.some(({ value }) => value === wanted));
    if (wanted && !isOffered) { groups.push({ group: "Of the address", items: [{ value: wanted, label: wanted }] }); }
    const option = ({ value, label }) => element("option", label, "", { value });
    select.replaceChildren(option({ value: "", label: "nothing" }), ...groups.map(({ group, items }) => {
      const made = element("optgroup", null, "", { label: group });
      made.append(...items.map(option));
      return made;
    }));
    select.value = wanted;
    select.title = select.selectedOptions[0].textContent;
    for (const each of this.buttons) { each.hidden = !wanted; }
  }

  /* Place the run beside in time: as the address has it, or so that both begin together. */
  place() {
    const { main, settings, sources: [, other] } = this.timeline;
    if (!other) { return; }
    const step = (main.steps || []).find((each) => each.step === this.step), starts = step ? main.steps[0].start_ns - step.start_ns : 0;
    other.shift = settings.align === "" ? starts : Number(settings.align) || 0;
  }

  alignBy(shift) {
    const { settings, sources: [, other] } = this.timeline;
    settings.align = shift === "" ? "" : String(Math.round(shift));
    this.place();
    if (other) { other.batch = null; }
    this.timeline.refresh();
  }

  alignSlices() {
    const { node, counterpart } = this.timeline.selection;
    if (node && counterpart) { this.alignBy(node.start_ns - counterpart.start_ns); }
  }

  /* Add to the details of *node* how long what does the same takes beside. */
  compare(node, found) {
    const out = document.querySelector("#timeline-details .details");
    if (!out) { return; }
    const length = node.end_ns - node.start_ns, other = found.end_ns - found.start_ns, pair = element("div");
    const change = length > 0 ? ` (${changeText((other - length) / length) || "the same"})` : "";
    pair.append(element("dt", "Beside"), element("dd", found.node < 0 ? "nothing does the same there" : `${durationText(other)}${change} from ${instantText(found.start_ns)}, node ${found.node}`));
    out.append(pair);
  }
}
