/* Comparison on the timeline: shows other steps of the run, or another run or capture of any study, below the rows of the
   same rank and on the same time axis. */
import { button, element, labelled } from "./dom.js";

const { changeText, durationText, instantText } = window.chakrascopeUnits;
const MAX_NAME = 16, MAX_STEPS = 12, MARGIN = 0.02;

export class Beside {
  constructor(timeline) {
    this.timeline = timeline;
    this.select = element("select", null, "timeline-input", { id: "timeline-beside-run", onchange: () => this.choose(this.select.value) });
    this.buttons = [
      button("Align slices", () => this.alignSlices(), { id: "timeline-align" }), button("Align starts", () => this.align(""), { id: "timeline-starts" }),
    ];
    document.getElementById("timeline-beside").replaceChildren(labelled("Compare with", this.select), " ", this.buttons[0], " ", this.buttons[1]);
    this.offer([]);
  }

  get wanted() { return this.timeline.settings.beside; }

  /* Return the numbers of the steps that are compared with the first step; empty if another run is compared. */
  get steps() {
    const numbers = this.wanted.startsWith("@") ? this.wanted.split(",").map((each) => Number(each.replace("@", ""))) : [];
    return [...new Set(numbers.filter(Number.isInteger))].slice(0, MAX_STEPS);
  }

  get others() { return this.timeline.sources.slice(1); }

  /* Return the sources of slices compared with *main*. The source of a step is the same run, shifted in time so that the
     step starts with the first step. */
  async sourcesOf(main) {
    const { steps, timeline, wanted } = this;
    if (!wanted) { return []; }
    if (wanted.startsWith("@")) {
      return steps.map((step) => ({ ...main, rowOf: main.rowOf.slice(), batch: null, step, name: `step ${step}`, title: `Step ${step}` }));
    }
    const study = wanted.includes("@") ? wanted.slice(0, wanted.lastIndexOf("@")) : "";
    const name = study.length > MAX_NAME ? `${study.slice(0, MAX_NAME - 1)}…` : study || "beside";
    const other = await timeline.source(wanted, main.nested ? 1 : 0);
    return other ? [Object.assign(other, { name, title: study ? `Compared, in ${study}` : "Compared" })] : [];
  }

  async choose(value) {
    const { timeline } = this;
    timeline.settings.align = "";
    await timeline.set("beside", value);
    if (!this.steps.length || !timeline.isLoaded) { return; }
    // The time window is as long as the longest step of the run.
    const [{ start_ns: start }] = timeline.main.steps, span = Math.max(...timeline.main.steps.map((step) => step.end_ns - step.start_ns));
    timeline.view.window(start - MARGIN * span, start + (1 + MARGIN) * span);
  }

  shown() { this.offer(this.timeline.main.steps || []); }

  /* Fill the list of comparisons with the steps of this run, if it has several, and the runs and captures of each study. */
  offer(steps) {
    const { wanted, select } = this, groups = [...this.stepGroups(steps.slice(1).map(({ step }) => step)), ...JSON.parse(this.timeline.holder.dataset.beside || "[]")];
    const isOffered = groups.some(({ items }) => items.some(({ value }) => value === wanted));
    if (wanted && !isOffered) { groups.push({ group: "From the address", items: [{ value: wanted, label: wanted }] }); }
    const option = ({ value, label }) => element("option", label, "", { value });
    select.replaceChildren(option({ value: "", label: "none" }), ...groups.map(({ group, items }) => {
      const made = element("optgroup", null, "", { label: group });
      made.append(...items.map(option));
      return made;
    }));
    select.value = wanted;
    select.title = select.selectedOptions[0].textContent;
    for (const each of this.buttons) { each.hidden = !wanted; }
  }

  /* Return the options for the steps after the first step (*rest*): all steps, each single step, and each step added to the
     chosen steps. */
  stepGroups(rest) {
    const { steps: chosen, wanted } = this, valueOf = (steps) => steps.map((step) => `@${step}`).join(",");
    if (!rest.length) { return []; }
    const most = rest.slice(0, MAX_STEPS), more = rest.filter((step) => !chosen.includes(step));
    const items = rest.map((step) => ({ value: valueOf([step]), label: `step ${step}` }));
    if (rest.length > 1) { items.unshift({ value: valueOf(most), label: most.length < rest.length ? `the next ${MAX_STEPS} steps` : "all steps" }); }
    if (chosen.length && !items.some(({ value }) => value === wanted)) { items.unshift({ value: wanted, label: `steps ${chosen.join(", ")}` }); }
    const adding = chosen.length && chosen.length < MAX_STEPS ? more.map((step) => ({ value: valueOf([...chosen, step]), label: `and step ${step}` })) : [];
    return [{ group: "Steps of this run", items }, ...(adding.length ? [{ group: "Further steps", items: adding }] : [])];
  }

  /* Shift the compared sources in time by the shifts in the address, or to a common start if the address has none. */
  place() {
    const { timeline: { main, settings }, others } = this, shifts = settings.align.split(",");
    others.forEach((source, i) => {
      const step = (main.steps || []).find((each) => each.step === source.step), starts = step ? main.steps[0].start_ns - step.start_ns : 0;
      source.shift = settings.align === "" ? starts : Number(shifts[i]) || 0;
    });
  }

  /* Shift the compared sources in time by *shifts* (ns); "" restores the default shifts. */
  align(shifts) {
    this.timeline.settings.align = shifts === "" ? "" : shifts.map(Math.round).join(",");
    this.place();
    for (const source of this.others) { source.batch = null; }
    this.timeline.refresh();
  }

  alignSlices() {
    const { node } = this.timeline.selection, { others } = this;
    if (node && others.some((source) => source.counterpart)) { this.align(others.map(({ counterpart, shift }) => (counterpart ? node.start_ns - counterpart.start_ns : shift))); }
  }

  /* Add the duration of *node*'s counterpart in a compared *source* to the details of the node. */
  compare(node, source, found) {
    const out = document.querySelector("#timeline-details .details");
    if (!out) { return; }
    const length = node.end_ns - node.start_ns, other = found.end_ns - found.start_ns, pair = element("div");
    const change = length > 0 ? ` (${changeText((other - length) / length) || "the same"})` : "";
    pair.append(element("dt", source.step === undefined ? "Compared" : source.title), element("dd", found.node < 0 ? "no equal node" : `${durationText(other)}${change} from ${instantText(found.start_ns)}, node ${found.node}`));
    out.append(pair);
  }
}
