"use strict";
/* The timeline: draws the window's slices on a canvas and fetches what the window lacks from /api/slices. */
(function () {
  const LABEL_WIDTH = 150, AXIS_HEIGHT = 26, LANE_HEIGHT = 22, FETCH_DELAY_MS = 90, NOTE_DELAY_MS = 400;
  const INK = { light: "#1f2933", dark: "#d5dbe1" }, LINE = { light: "#e4e8ec", dark: "#333a41" };
  const PATH_COLOUR = "#d6264f";

  function timeText(ns) {
    const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
    for (const [scale, unit] of units) {
      if (Math.abs(ns) >= scale) { return `${parseFloat((ns / scale).toPrecision(6))} ${unit}`; }
    }
    return ns === 0 ? "0" : `${Math.round(ns)} ns`;
  }

  function decode(buffer) {
    const count = new DataView(buffer).getUint32(0, true);
    let at = 8;
    const take = (Type) => { const column = new Type(buffer, at, count); at += column.byteLength; return column; };
    return {
      count, start: take(Float64Array), end: take(Float64Array), node: take(Float64Array),
      lane: take(Int32Array), merged: take(Int32Array), kind: take(Uint8Array),
    };
  }

  class Timeline {
    constructor(holder) {
      this.holder = holder;
      this.canvas = holder.querySelector("canvas");
      this.context = this.canvas.getContext("2d");
      this.tip = document.createElement("div");
      this.tip.className = "timeline-tip";
      holder.appendChild(this.tip);
      this.t0 = 0; this.t1 = 1; this.scroll = 0; this.sequence = 0; this.showPath = true;
      this.lanes = []; this.batch = null; this.selected = null; this.wanted = null; this.area = null;
      this.listen();
    }

    async load(run) {
      this.run = run; this.holder.dataset.selected = "";
      const reply = await fetch(`./api/lanes?run=${encodeURIComponent(run)}`);
      if (!reply.ok) { return; }
      const data = await reply.json();
      Object.assign(this, { lanes: data.lanes, kinds: data.kinds, path: data.path, makespan: data.makespan_ns });
      this.firstWindow();
      if (this.wanted) { this.select(this.wanted); }
    }

    get width() { return Math.max(50, this.canvas.clientWidth - LABEL_WIDTH); }
    get height() { return this.canvas.clientHeight; }
    x(t) { return LABEL_WIDTH + ((t - this.t0) / (this.t1 - this.t0)) * this.width; }
    t(x) { return this.t0 + ((x - LABEL_WIDTH) / this.width) * (this.t1 - this.t0); }
    y(lane) { return AXIS_HEIGHT + lane * LANE_HEIGHT - this.scroll; }

    fit() { this.window(-0.01 * this.makespan, 1.01 * this.makespan); }

    window(t0, t1) {
      const span = Math.min(Math.max(t1 - t0, 20), 1.1 * this.makespan);
      const middle = (t0 + t1) / 2, low = -0.05 * this.makespan, high = 1.05 * this.makespan;
      this.t0 = Math.max(low, Math.min(middle - span / 2, high - span));
      this.t1 = this.t0 + span;
      this.refresh();
    }

    zoom(factor, x) {
      const at = this.t(x === undefined ? LABEL_WIDTH + this.width / 2 : x);
      this.window(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
    }

    pan(pixels) {
      const shift = (pixels / this.width) * (this.t1 - this.t0);
      this.window(this.t0 + shift, this.t1 + shift);
    }

    scrollBy(pixels) {
      const most = Math.max(0, this.lanes.length * LANE_HEIGHT + AXIS_HEIGHT + 8 - this.height);
      this.scroll = Math.max(0, Math.min(most, this.scroll + pixels));
      this.refresh();
    }

    refresh() {
      this.draw();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.fetch(), FETCH_DELAY_MS);
      clearTimeout(this.noting);
      this.noting = setTimeout(() => this.noteWindow(), NOTE_DELAY_MS);
    }

    /* Write the window into the address without a step in the browser's history, so that it can be shared. Dash
       reads the address again only when told that it changed; unaware, it would put its own back at the next click. */
    noteWindow() {
      if (!this.holder.isConnected) { return; }
      const query = new URLSearchParams(window.location.search);
      query.set("t0", Math.round(this.t0));
      query.set("t1", Math.round(this.t1));
      if (`?${query}` === window.location.search) { return; }
      window.history.replaceState(window.history.state, "", `?${query}`);
      window.dispatchEvent(new PopStateEvent("popstate", { state: window.history.state }));
    }

    /* Show the window of the address if it names one of this run, else everything. */
    firstWindow() {
      const query = new URLSearchParams(window.location.search);
      const t0 = Number(query.get("t0") || NaN), t1 = Number(query.get("t1") || NaN);
      if (query.get("run") === this.run && t1 > t0) { this.window(t0, t1); } else { this.fit(); }
    }

    async fetch() {
      const sequence = ++this.sequence, span = this.t1 - this.t0;
      const first = Math.max(0, Math.floor(this.scroll / LANE_HEIGHT) - 4);
      const query = new URLSearchParams({
        run: this.run, t0: Math.floor(this.t0 - span / 2), t1: Math.ceil(this.t1 + span / 2), px: 2 * this.width,
        lane0: first, lane1: first + Math.ceil(this.height / LANE_HEIGHT) + 8,
      });
      const reply = await fetch(`./api/slices?${query}`);
      if (!reply.ok) { return; }
      const buffer = await reply.arrayBuffer();
      if (sequence === this.sequence) { this.batch = decode(buffer); this.draw(); this.ready(); }
    }

    ready() { this.holder.dataset.slices = this.batch.count; }

    draw() {
      const canvas = this.canvas, context = this.context, ratio = window.devicePixelRatio || 1;
      const scheme = this.holder.dataset.scheme === "dark" ? "dark" : "light";
      if (canvas.width !== canvas.clientWidth * ratio || canvas.height !== canvas.clientHeight * ratio) {
        canvas.width = canvas.clientWidth * ratio; canvas.height = canvas.clientHeight * ratio;
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
      if (!this.kinds) { return; }
      context.save();
      context.beginPath();
      context.rect(LABEL_WIDTH, AXIS_HEIGHT, this.width, this.height);
      context.clip();
      this.drawSlices(context);
      if (this.showPath) { this.drawPath(context); }
      this.drawFlows(context);
      this.drawSelected(context, scheme);
      this.drawArea(context, scheme);
      context.restore();
      this.drawLabels(context, scheme);
      this.drawAxis(context, scheme);
    }

    drawSlices(context) {
      const batch = this.batch;
      if (!batch) { return; }
      for (let i = 0; i < batch.count; i++) {
        const y = this.y(batch.lane[i]);
        if (y < AXIS_HEIGHT - LANE_HEIGHT || y > this.height) { continue; }
        const x = this.x(batch.start[i]), width = this.x(batch.end[i]) - x;
        context.fillStyle = this.kinds[batch.kind[i]].colour;
        context.fillRect(x, y + 2, Math.max(width > 3 ? width - 0.5 : width, 0.6), LANE_HEIGHT - 5);
      }
    }

    drawPath(context) {
      const path = this.path;
      context.fillStyle = context.strokeStyle = PATH_COLOUR;
      context.lineWidth = 1.2;
      let before = null;
      for (let i = 0; i < path.lane.length; i++) {
        if (path.end_ns[i] < this.t0 || path.start_ns[i] > this.t1) { before = null; continue; }
        const x = this.x(path.start_ns[i]), y = this.y(path.lane[i]) + LANE_HEIGHT - 3;
        context.fillRect(x, y, Math.max(this.x(path.end_ns[i]) - x, 0.6), 3);
        if (before !== null && before !== path.lane[i]) {
          context.beginPath();
          context.moveTo(x, this.y(before) + LANE_HEIGHT - 2);
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
      context.strokeRect(x - 1, this.y(node.lane) + 1, width + 2, LANE_HEIGHT - 3);
    }

    /* Draw an arrow from each node the selected one waits for, and to each that waits for it. */
    drawFlows(context) {
      const node = this.selected;
      if (!node || node.lane < 0) { return; }
      for (const flow of node.flows || []) {
        const [from, to] = flow.before ? [flow, node] : [node, flow];
        const x0 = this.x(from.end_ns), y0 = this.y(from.lane) + LANE_HEIGHT / 2;
        const x1 = this.x(to.start_ns), y1 = this.y(to.lane) + LANE_HEIGHT / 2, bend = Math.max(20, Math.abs(x1 - x0) / 2);
        context.strokeStyle = context.fillStyle = flow.colour;
        context.lineWidth = 1.6;
        context.beginPath();
        context.moveTo(x0, y0);
        context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
        context.stroke();
        context.beginPath();
        context.moveTo(x1, y1); context.lineTo(x1 - 7, y1 - 4); context.lineTo(x1 - 7, y1 + 4);
        context.fill();
      }
    }

    drawArea(context, scheme) {
      const area = this.area;
      if (!area) { return; }
      const box = [Math.min(area.x0, area.x1), Math.min(area.y0, area.y1), Math.abs(area.x1 - area.x0), Math.abs(area.y1 - area.y0)];
      context.globalAlpha = 0.15;
      context.fillStyle = context.strokeStyle = INK[scheme];
      context.fillRect(...box);
      context.globalAlpha = 1;
      context.lineWidth = 1;
      context.strokeRect(...box);
    }

    drawLabels(context, scheme) {
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      let rank = null;
      this.lanes.forEach((lane, i) => {
        const y = this.y(i);
        const first = lane.rank !== rank;
        rank = lane.rank;
        if (y < AXIS_HEIGHT - LANE_HEIGHT / 2 || y > this.height) { return; }
        if (first) {
          context.fillStyle = LINE[scheme];
          context.fillRect(0, y, LABEL_WIDTH + this.width, 1);
          context.fillStyle = INK[scheme];
          context.fillText(`rank ${lane.rank}`, 8, y + LANE_HEIGHT / 2, 54);
        }
        context.fillStyle = INK[scheme];
        context.globalAlpha = 0.65;
        context.fillText(lane.label, 64, y + LANE_HEIGHT / 2, LABEL_WIDTH - 70);
        context.globalAlpha = 1;
      });
    }

    drawAxis(context, scheme) {
      context.fillStyle = INK[scheme];
      const rough = (this.t1 - this.t0) / Math.max(2, this.width / 110);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
      for (let t = Math.ceil(this.t0 / step) * step; t <= this.t1; t += step) {
        const x = this.x(t);
        context.globalAlpha = 0.25;
        context.fillRect(x, AXIS_HEIGHT - 6, 1, 6);
        context.globalAlpha = 1;
        context.fillText(timeText(Math.round(t)), x + 3, 12);
      }
      context.globalAlpha = 0.25;
      context.fillRect(0, AXIS_HEIGHT - 1, LABEL_WIDTH + this.width, 1);
      context.globalAlpha = 1;
    }
  }

  window.chakrascopeTimeline = { Timeline, LABEL_WIDTH, AXIS_HEIGHT, LANE_HEIGHT, timeText };
})();
