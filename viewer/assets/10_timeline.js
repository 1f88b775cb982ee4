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
      this.lanes = []; this.batch = null; this.selected = null; this.wanted = null;
      this.listen();
    }

    async load(run) {
      this.run = run; this.holder.dataset.selected = "";
      const reply = await fetch(`/api/lanes?run=${encodeURIComponent(run)}`);
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
      const reply = await fetch(`/api/slices?${query}`);
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
      this.drawSelected(context, scheme);
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

    hit(x, y) {
      const batch = this.batch;
      if (!batch || x < LABEL_WIDTH || y < AXIS_HEIGHT) { return -1; }
      const lane = Math.floor((y - AXIS_HEIGHT + this.scroll) / LANE_HEIGHT);
      const slack = (this.t1 - this.t0) / this.width, t = this.t(x);
      let best = -1, nearest = 2 * slack;
      for (let i = 0; i < batch.count; i++) {
        if (batch.lane[i] !== lane) { continue; }
        const gap = Math.max(batch.start[i] - t, t - batch.end[i], 0);
        if (gap < nearest || (gap === nearest && gap === 0)) { best = i; nearest = gap; }
      }
      return best;
    }

    async details(rank, node) {
      const query = new URLSearchParams({ run: this.run, rank, node });
      const reply = await fetch(`/api/node?${query}`);
      return reply.ok ? reply.json() : null;
    }

    async hover(x, y) {
      const i = this.hit(x, y), key = i < 0 ? "" : `${this.batch.lane[i]}:${this.batch.node[i]}`;
      if (key !== this.hovered) {
        this.hovered = key;
        this.tip.style.display = "none";
        if (i < 0) { return; }
        const merged = this.batch.merged[i];
        const found = await this.details(this.lanes[this.batch.lane[i]].rank, this.batch.node[i]);
        if (!found || this.hovered !== key) { return; }
        const facts = Object.fromEntries(found.details);
        const also = merged > 1 ? ` · longest of ${merged} here` : "";
        this.tip.textContent = `${facts.Name || ""} · ${facts["Simulated duration"]}${also}`;
      } else if (i < 0) { return; }
      this.tip.style.display = "block";
      this.tip.style.left = `${Math.min(x + 14, this.canvas.clientWidth - 260)}px`;
      this.tip.style.top = `${Math.min(y + 14, this.height - 44)}px`;
    }

    click(x, y) {
      const i = this.hit(x, y);
      if (i < 0) { return; }
      const query = new URLSearchParams(window.location.search);
      query.set("run", this.run);
      query.set("rank", this.lanes[this.batch.lane[i]].rank);
      query.set("node", this.batch.node[i]);
      window.dash_clientside.set_props("url", { search: `?${query}` });
    }

    async select(selection) {
      this.wanted = selection;
      if (!this.kinds) { return; }
      const key = selection && selection.node >= 0 ? `${selection.rank}:${selection.node}` : "";
      if (key && key === this.holder.dataset.selected) { this.draw(); return; }
      const out = document.getElementById("timeline-details");
      if (!selection || selection.node < 0) { this.selected = null; this.holder.dataset.selected = ""; this.draw(); return; }
      this.selected = await this.details(selection.rank, selection.node);
      if (out) { showDetails(out, this.selected); }
      this.holder.dataset.selected = this.selected ? key : "";
      if (this.selected) { this.reveal(this.selected); }
      this.draw();
    }

    reveal(node) {
      const y = this.y(node.lane);
      if (y < AXIS_HEIGHT || y > this.height - LANE_HEIGHT) { this.scrollBy(y - this.height / 2); }
      const x = this.x(node.start_ns), width = this.x(node.end_ns) - x;
      const outside = x + width < LABEL_WIDTH || x > LABEL_WIDTH + this.width;
      if (outside || width < 2) {
        const span = Math.max(60 * (node.end_ns - node.start_ns), 2000);
        const middle = (node.start_ns + node.end_ns) / 2;
        this.window(middle - span / 2, middle + span / 2);
      }
    }

    listen() {
      const canvas = this.canvas;
      let drag = null;
      canvas.addEventListener("pointerdown", (event) => {
        canvas.focus(); canvas.setPointerCapture(event.pointerId);
        drag = { x: event.offsetX, y: event.offsetY, moved: false };
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!drag) { this.hover(event.offsetX, event.offsetY); return; }
        const dx = drag.x - event.offsetX, dy = drag.y - event.offsetY;
        if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) { return; }
        this.tip.style.display = "none";
        this.pan(dx); this.scrollBy(dy);
        drag = { x: event.offsetX, y: event.offsetY, moved: true };
      });
      canvas.addEventListener("pointerup", (event) => {
        if (drag && !drag.moved) { this.click(event.offsetX, event.offsetY); }
        drag = null;
      });
      canvas.addEventListener("pointerleave", () => { this.hovered = ""; this.tip.style.display = "none"; });
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        if (event.ctrlKey || event.metaKey) { this.zoom(Math.exp(event.deltaY * 0.002), event.offsetX); }
        else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { this.pan(event.deltaX || event.deltaY); }
        else { this.scrollBy(event.deltaY); }
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => this.key(event));
      new ResizeObserver(() => { if (this.kinds) { this.refresh(); } }).observe(this.holder);
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) { return; }
      const step = this.width / 6;
      const actions = {
        w: () => this.zoom(0.7), s: () => this.zoom(1 / 0.7), a: () => this.pan(-step), d: () => this.pan(step),
        f: () => this.fit(), p: () => { this.showPath = !this.showPath; this.draw(); },
        ArrowLeft: () => this.pan(-step), ArrowRight: () => this.pan(step),
        ArrowUp: () => this.scrollBy(-3 * LANE_HEIGHT), ArrowDown: () => this.scrollBy(3 * LANE_HEIGHT),
      };
      const action = actions[event.key] || actions[event.key.toLowerCase()];
      if (action) { event.preventDefault(); action(); }
    }
  }

  function showDetails(out, found) {
    const list = document.createElement("dl");
    list.className = "details";
    for (const [label, text] of found ? found.details : []) {
      const term = document.createElement("dt"), value = document.createElement("dd");
      term.textContent = label; value.textContent = text;
      list.append(term, value);
    }
    out.replaceChildren(list);
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    scheme(dark) { return dark ? "dark" : "light"; },

    timeline(run, scheme, selection) {
      const holder = document.getElementById("timeline");
      if (!holder || !run) { return window.dash_clientside.no_update; }
      if (!holder.timeline) { holder.timeline = new Timeline(holder); }
      const timeline = holder.timeline;
      if (timeline.run !== run) { timeline.load(run); } else { timeline.draw(); }
      timeline.select(selection);
      return window.dash_clientside.no_update;
    },
  });
})();
