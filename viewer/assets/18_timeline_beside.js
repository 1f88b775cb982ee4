"use strict";
/* Another step of this run, or another run or capture, also of another study, in the same view: its rows below those of
   the same rank, on one clock. */
(function () {
  const { TimelineNotes, element } = window.chakrascopeTimeline;
  const { durationText, instantText, changeText } = window.chakrascopeUnits;
  const COUNTERPART = [4, 3], MOST_NAME = 16;

  class TimelineBeside extends TimelineNotes {
    constructor(holder) {
      super(holder);
      this.counter = null;
      const out = document.getElementById("timeline-beside");
      if (!out) { return; }
      const select = element("select", null, "timeline-input", { id: "timeline-beside-run", onchange: () => { this.settings.align = ""; this.set("beside", select.value); } });
      const align = element("button", "Align slices", "timeline-button", { type: "button", id: "timeline-align", onclick: () => this.alignAtSelected() });
      const starts = element("button", "Align starts", "timeline-button", { type: "button", id: "timeline-starts", onclick: () => this.alignBy("") });
      this.besideParts = { select, align, starts };
      out.replaceChildren(this.labelled("Beside", select), " ", align, " ", starts);
      this.offerRuns([]);
    }

    /* Offer the steps of this run if it has several, then the other runs and captures, study by study. */
    offerRuns(steps) {
      if (!this.besideParts) { return; }
      const { select, align, starts } = this.besideParts, groups = JSON.parse(this.holder.dataset.beside || "[]");
      if (steps.length > 1) {
        groups.unshift({ group: "Steps of this run", items: steps.slice(1).map((each) => ({ value: `@${each.step}`, label: `step ${each.step}` })) });
      }
      const option = ({ value, label }) => element("option", label, "", { value }), wanted = this.settings.beside;
      if (wanted && !groups.some(({ items }) => items.some(({ value }) => value === wanted))) { groups.push({ group: "Of the address", items: [{ value: wanted, label: wanted }] }); }
      select.replaceChildren(option({ value: "", label: "nothing" }), ...groups.map(({ group, items }) => {
        const made = element("optgroup", null, "", { label: group });
        made.append(...items.map(option));
        return made;
      }));
      select.value = wanted;
      select.title = select.selectedOptions[0].textContent;
      align.hidden = starts.hidden = !wanted;
    }

    /* A step of the run shown is the same run, moved in time so that the step begins where the first does. */
    besideRun() { return this.besideStep() === null ? this.settings.beside : this.run; }
    besideStep() { return this.settings.beside.startsWith("@") ? Number(this.settings.beside.slice(1)) : null; }

    /* What stands before the rows beside: another study's name, if they are of one. */
    besideName() {
      const study = this.besideRun().includes("@") ? this.besideRun().slice(0, this.besideRun().lastIndexOf("@")) : "";
      return study.length > MOST_NAME ? `${study.slice(0, MOST_NAME - 1)}…` : study || "beside";
    }

    place() {
      const other = this.sources[1];
      if (!other) { return; }
      const step = (this.main.steps || []).find((each) => each.step === this.besideStep());
      const starts = step ? this.main.steps[0].start_ns - step.start_ns : 0;
      other.shift = this.settings.align === "" ? starts : Number(this.settings.align) || 0;
    }

    shown() {
      super.shown();
      this.offerRuns(this.main.steps || []);
    }

    alignBy(shift) {
      this.settings.align = shift === "" ? "" : String(Math.round(shift));
      this.place();
      this.sources.forEach((source) => { if (source !== this.main) { source.batch = null; } });
      this.refresh();
    }

    alignAtSelected() {
      if (this.selected && this.counter) { this.alignBy(this.selected.start_ns - this.counter.start_ns); }
    }

    /* Find what does the same beside, and say how much longer it takes there. */
    async findCounterpart(node) {
      this.counter = null;
      if (!this.sources[1] || !node) { return; }
      const step = this.besideStep(), query = this.query({ beside: this.besideRun(), rank: node.rank, node: node.node, ...(step === null ? {} : { step }) });
      const reply = await fetch(`./api/counterpart?${query}`);
      if (!reply.ok || this.selected !== node) { return; }
      const found = await reply.json(), out = document.querySelector("#timeline-details .details");
      if (found.node >= 0) { this.counter = found; }
      if (out) {
        const length = node.end_ns - node.start_ns, other = found.end_ns - found.start_ns, pair = element("div");
        const change = length > 0 ? ` (${changeText((other - length) / length) || "the same"})` : "";
        pair.append(element("dt", "Beside"), element("dd", found.node < 0 ? "nothing does the same there" : `${durationText(other)}${change} from ${instantText(found.start_ns)}, node ${found.node}`));
        out.append(pair);
      }
      this.draw();
    }

    drawSelected(context) {
      super.drawSelected(context);
      const other = this.sources[1], found = this.counter, row = other && found && this.selected && this.rowOf(other, found.lane);
      if (!row) { return; }
      const x = this.x(found.start_ns + other.shift), wide = Math.max(this.x(found.end_ns + other.shift) - x, 3);
      context.setLineDash(COUNTERPART);
      context.strokeRect(x - 1, this.y(row), wide + 2, row.height - 3);
      context.setLineDash([]);
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineBeside });
})();
