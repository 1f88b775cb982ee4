"use strict";
/* Draws what surrounds the timeline's slices: the labels of its rows, the axis, the whole step, the scroll bar. */
(function () {
  const { TimelineDrawing, LABEL_WIDTH, OVERVIEW_HEIGHT, TOP, ranksText, INK, ORDERS } = window.chakrascopeTimeline;
  const { durationText, instantText } = window.chakrascopeUnits;
  const AXIS_LABEL = 110, RANK_WIDTH = 100;
  const ORDER_WORDS = { finish: "ends", exposed: "exposed", waiting: "waits" };

  class TimelineFrame extends TimelineDrawing {
    /* Name each row, and at the first ones of a rank the rank, how many others did the same, and what it is sorted by. */
    drawLabels(context, pinned) {
      context.textBaseline = "middle";
      context.fillStyle = INK[this.scheme];
      for (const row of this.rows) {
        const y = this.y(row) + row.height / 2;
        if (row.pinned !== pinned || y < TOP - row.height || y > this.height + row.height) { continue; }
        const facts = this.rankFacts(row);
        if (row.place < facts.length) {
          context.font = row.place ? "11px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
          context.globalAlpha = row.place ? 0.75 : 1;
          context.fillText(facts[row.place], 8, y, RANK_WIDTH - 8);
        }
        context.font = `${row.measured ? "italic " : ""}${row.isGroup ? "11px" : "12px"} system-ui, sans-serif`;
        context.globalAlpha = 0.75;
        context.fillText(row.label, RANK_WIDTH + 6, y, LABEL_WIDTH - RANK_WIDTH - 12);
        context.globalAlpha = 1;
      }
    }

    /* Return what stands at the left of a rank's rows, one text a row. */
    rankFacts(row) {
      const { ranks, facts, stood_in: star } = row.group, many = ranks.length > 1, pin = row.pinned ? "▲ " : "";
      const texts = [`${pin}rank${many ? "s" : ""} ${ranksText(ranks)}${star ? "*" : ""}`];
      if (many) { texts.push(`${ranks.length} did the same`); }
      const column = ORDERS[this.settings.order];
      if (column) { texts.push(`${ORDER_WORDS[this.settings.order]} ${durationText(facts[column])}`); }
      if (this.sources.length > 1) { texts.push(row.source === this.main ? "this run" : this.besideName()); }
      return texts;
    }

    /* Where ticks are closer than a name has digits for, they count from the one at the left, which stands in the corner. */
    drawAxis(context, scheme) {
      context.fillStyle = INK[scheme];
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      const rough = (this.t1 - this.t0) / Math.max(2, this.width / AXIS_LABEL);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough), first = Math.ceil(this.t0 / step) * step;
      // Three digits are what a name has.
      const isFine = first > 0 && step < 10 ** (Math.floor(Math.log10(Math.max(this.t1, 1))) - 2), base = isFine ? first : 0;
      if (isFine) { context.fillText(`${instantText(Math.round(base), Math.min(step, 1000))} +`, 8, TOP - 14, LABEL_WIDTH - 16); }
      for (let t = first; t <= this.t1; t += step) {
        const x = this.x(t), text = durationText(Math.round(t - base));
        context.globalAlpha = 0.25;
        context.fillRect(x, TOP - 8, 1, 8);
        context.globalAlpha = 1;
        if (x + 4 + context.measureText(text).width < LABEL_WIDTH + this.width) { context.fillText(text, x + 4, TOP - 14); }
      }
      context.globalAlpha = 0.25;
      context.fillRect(0, TOP - 1, LABEL_WIDTH + this.width, 1);
      context.globalAlpha = 1;
    }

    /* The whole step in one line, in the colours of what its critical path does; the frame is the window shown. */
    drawOverview(context, scheme, ratio) {
      const tall = OVERVIEW_HEIGHT - 8;
      if (!this.overview) { this.overview = this.paintOverview(ratio, tall); }
      context.drawImage(this.overview, LABEL_WIDTH, 4, this.width, tall);
      context.fillStyle = context.strokeStyle = INK[scheme];
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.globalAlpha = 0.75;
      context.fillText("critical path", 8, 4 + tall / 2, LABEL_WIDTH - 16);
      context.globalAlpha = 1;
      const at = (t) => LABEL_WIDTH + Math.max(0, Math.min(1, t / this.makespan)) * this.width;
      context.lineWidth = 1.5;
      context.strokeRect(at(this.t0) + 1, 2, Math.max(3, at(this.t1) - at(this.t0) - 2), tall + 4);
    }

    paintOverview(ratio, tall) {
      const canvas = document.createElement("canvas"), path = this.main.path;
      canvas.width = Math.ceil(this.width * ratio); canvas.height = Math.ceil(tall * ratio);
      const context = canvas.getContext("2d"), scale = canvas.width / this.makespan;
      for (let i = 0; i < path.lane.length; i++) {
        context.fillStyle = path.kind[i];
        context.fillRect(path.start_ns[i] * scale, 0, Math.max(0.6, (path.end_ns[i] - path.start_ns[i]) * scale), canvas.height);
      }
      return canvas;
    }

    drawScrollbar(context, scheme) {
      if (!this.mostScroll) { return; }
      const room = this.height - this.scrollTop - 4, part = room / (room + this.mostScroll), tall = Math.max(24, room * part);
      context.globalAlpha = 0.35;
      context.fillStyle = INK[scheme];
      context.fillRect(LABEL_WIDTH + this.width - 6, this.scrollTop + 2 + (room - tall) * (this.scroll / this.mostScroll), 4, tall);
      context.globalAlpha = 1;
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineFrame, RANK_WIDTH });
})();
