"use strict";
/* Draws the timeline on its canvas: slices with their names, the critical path, arrows, the marked area, the axis. */
(function () {
  const { TimelineState, LABEL_WIDTH, OVERVIEW_HEIGHT, TOP } = window.chakrascopeTimeline;
  const { durationText, instantText } = window.chakrascopeUnits;
  const INK = { light: "#1f2933", dark: "#d5dbe1" }, LINE = { light: "#d9dee3", dark: "#3a4148" };
  const BAND = { light: "#f3f5f7", dark: "#1d2125" };
  const CHARACTER = 6.3, LEAST_TEXT = 30, AXIS_LABEL = 110, MEASURED_ALPHA = 0.55;

  class TimelineDrawing extends TimelineState {
    draw() {
      const canvas = this.canvas, context = this.context, ratio = window.devicePixelRatio || 1;
      const scheme = this.holder.dataset.scheme === "dark" ? "dark" : "light";
      if (canvas.width !== canvas.clientWidth * ratio || canvas.height !== canvas.clientHeight * ratio) {
        canvas.width = canvas.clientWidth * ratio; canvas.height = canvas.clientHeight * ratio;
        this.overview = null;
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
      if (!this.kinds) { return; }
      this.drawBands(context, scheme);
      context.save();
      context.beginPath();
      context.rect(LABEL_WIDTH, TOP, this.width, this.height);
      context.clip();
      this.drawSlices(context, scheme);
      if (this.showPath) { this.drawPath(context); }
      this.drawFlows(context);
      this.drawSelected(context, scheme);
      this.drawArea(context, scheme);
      context.restore();
      this.drawLabels(context, scheme);
      this.drawAxis(context, scheme);
      this.drawOverview(context, scheme, ratio);
      this.drawScrollbar(context, scheme);
    }

    /* Tell the measured lanes from the simulated ones, and one rank from the next. */
    drawBands(context, scheme) {
      this.lanes.forEach((lane, i) => {
        const y = this.y(i);
        if (y < TOP - this.laneHeight || y > this.height) { return; }
        if (lane.measured) {
          context.fillStyle = BAND[scheme];
          context.fillRect(0, y, LABEL_WIDTH + this.width, this.laneHeight);
        }
        if (i && lane.rank !== this.lanes[i - 1].rank) {
          context.fillStyle = LINE[scheme];
          context.fillRect(0, y, LABEL_WIDTH + this.width, 1);
        }
      });
    }

    drawSlices(context, scheme) {
      const batch = this.batch;
      if (!batch) { return; }
      const scale = this.width / (this.t1 - this.t0), top = TOP - this.scroll, tall = this.laneHeight, right = LABEL_WIDTH + this.width;
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      for (let i = 0; i < batch.count; i++) {
        const lane = batch.lane[i], y = top + lane * tall;
        if (y < TOP - tall || y > this.height) { continue; }
        const x = LABEL_WIDTH + (batch.start[i] - this.t0) * scale, width = (batch.end[i] - batch.start[i]) * scale;
        if (x > right || x + width < LABEL_WIDTH) { continue; }
        const kind = this.kinds[batch.kind[i]], measured = this.lanes[lane].measured;
        context.globalAlpha = measured ? MEASURED_ALPHA : 1;
        context.fillStyle = kind.colour;
        context.fillRect(x, y + 2, Math.max(width > 3 ? width - 0.5 : width, 0.6), tall - 6);
        context.globalAlpha = 1;
        if (batch.name[i] < 0) { continue; }
        context.fillStyle = measured && scheme === "dark" ? INK.dark : kind.ink;
        this.drawName(context, batch.names[batch.name[i]], x, width, y + tall / 2 - 1);
      }
    }

    /* Write a name into the visible part of its slice, cut to what fits. */
    drawName(context, name, x, width, y) {
      const left = Math.max(x, LABEL_WIDTH), room = Math.min(x + width, LABEL_WIDTH + this.width) - left - 6;
      if (room < LEAST_TEXT - 6) { return; }
      const most = Math.floor(room / CHARACTER);
      context.fillText(name.length <= most ? name : `${name.slice(0, most - 1)}…`, left + 3, y, room);
    }

    drawPath(context) {
      const path = this.path;
      context.fillStyle = context.strokeStyle = path.colour;
      context.lineWidth = 1.2;
      let before = null;
      for (let i = 0; i < path.lane.length; i++) {
        if (path.end_ns[i] < this.t0 || path.start_ns[i] > this.t1) { before = null; continue; }
        const x = this.x(path.start_ns[i]), y = this.y(path.lane[i]) + this.laneHeight - 4;
        context.fillRect(x, y, Math.max(this.x(path.end_ns[i]) - x, 0.6), 3);
        if (before !== null && before !== path.lane[i]) {
          context.beginPath();
          context.moveTo(x, this.y(before) + this.laneHeight - 3);
          context.lineTo(x, y + 1);
          context.stroke();
        }
        before = path.lane[i];
      }
    }

    drawSelected(context, scheme) {
      const node = this.selected;
      if (!node || node.lane < 0) { return; }
      const x = this.x(node.start_ns), width = Math.max(this.x(node.end_ns) - x, 3);
      context.strokeStyle = INK[scheme];
      context.lineWidth = 2.5;
      context.strokeRect(x - 1, this.y(node.lane) + 1, width + 2, this.laneHeight - 4);
    }

    /* Draw an arrow from each node the selected one waits for, and to each that waits for it. */
    drawFlows(context) {
      const node = this.selected;
      if (!node || node.lane < 0) { return; }
      for (const flow of node.flows || []) {
        const [from, to] = flow.before ? [flow, node] : [node, flow];
        const late = flow.before && flow.start_ns === flow.end_ns && flow.start_ns > node.start_ns;
        const x0 = this.x(from.end_ns), y0 = this.y(from.lane) + this.laneHeight / 2;
        const x1 = this.x(late ? flow.start_ns : to.start_ns), y1 = this.y(to.lane) + this.laneHeight / 2;
        this.drawArrow(context, x0, y0, x1, y1, flow.colour);
      }
    }

    drawArrow(context, x0, y0, x1, y1, colour) {
      const bend = Math.max(20, Math.abs(x1 - x0) / 2);
      context.strokeStyle = context.fillStyle = colour;
      context.lineWidth = 1.6;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1); context.lineTo(x1 - 7, y1 - 4); context.lineTo(x1 - 7, y1 + 4);
      context.fill();
    }

    /* The area keeps its place in time and lanes, so it stays where it is while the window moves. */
    drawArea(context, scheme) {
      const area = this.area;
      if (!area) { return; }
      const y = this.y(area.lane0);
      const box = [this.x(area.t0), y, this.x(area.t1) - this.x(area.t0), this.y(area.lane1) - y];
      context.globalAlpha = 0.13;
      context.fillStyle = context.strokeStyle = INK[scheme];
      context.fillRect(...box);
      context.globalAlpha = 1;
      context.lineWidth = 1;
      context.strokeRect(...box);
      context.font = "12px system-ui, sans-serif";
      context.fillText(durationText(Math.round(area.t1 - area.t0)), Math.max(box[0], LABEL_WIDTH) + 4, Math.max(TOP, y) + 9);
    }

    drawLabels(context, scheme) {
      context.textBaseline = "middle";
      context.fillStyle = INK[scheme];
      let rank = null;
      this.lanes.forEach((lane, i) => {
        const y = this.y(i) + this.laneHeight / 2, first = lane.rank !== rank;
        rank = lane.rank;
        if (y < TOP || y > this.height) { return; }
        context.font = "600 12px system-ui, sans-serif";
        if (first) { context.fillText(`rank ${lane.rank}${lane.stood_in ? "*" : ""}`, 8, y, 62); }
        context.font = `${lane.measured ? "italic " : ""}12px system-ui, sans-serif`;
        context.globalAlpha = 0.75;
        context.fillText(lane.label, 70, y, LABEL_WIDTH - 76);
        context.globalAlpha = 1;
      });
    }

    drawAxis(context, scheme) {
      context.fillStyle = INK[scheme];
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      const rough = (this.t1 - this.t0) / Math.max(2, this.width / AXIS_LABEL);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
      for (let t = Math.ceil(this.t0 / step) * step; t <= this.t1; t += step) {
        const x = this.x(t), text = instantText(Math.round(t), step);
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
      context.globalAlpha = 0.75;
      context.fillText("critical path", 8, 4 + tall / 2, LABEL_WIDTH - 16);
      context.globalAlpha = 1;
      const at = (t) => LABEL_WIDTH + Math.max(0, Math.min(1, t / this.makespan)) * this.width;
      context.lineWidth = 1.5;
      context.strokeRect(at(this.t0) + 1, 2, Math.max(3, at(this.t1) - at(this.t0) - 2), tall + 4);
    }

    paintOverview(ratio, tall) {
      const canvas = document.createElement("canvas"), path = this.path;
      canvas.width = Math.ceil(this.width * ratio); canvas.height = Math.ceil(tall * ratio);
      const context = canvas.getContext("2d"), scale = canvas.width / this.makespan;
      for (let i = 0; i < path.lane.length; i++) {
        context.fillStyle = this.kinds[path.kind[i]].colour;
        context.fillRect(path.start_ns[i] * scale, 0, Math.max(0.6, (path.end_ns[i] - path.start_ns[i]) * scale), canvas.height);
      }
      return canvas;
    }

    drawScrollbar(context, scheme) {
      if (!this.mostScroll) { return; }
      const room = this.height - TOP - 4, part = room / (room + this.mostScroll), tall = Math.max(24, room * part);
      context.globalAlpha = 0.35;
      context.fillStyle = INK[scheme];
      context.fillRect(LABEL_WIDTH + this.width - 6, TOP + 2 + (room - tall) * (this.scroll / this.mostScroll), 4, tall);
      context.globalAlpha = 1;
    }
  }

  window.chakrascopeTimeline.TimelineDrawing = TimelineDrawing;
})();
