"use strict";
/* The timeline's state: which window of which run is shown, and what of it has come from the server. */
(function () {
  const LABEL_WIDTH = 168, OVERVIEW_HEIGHT = 22, TOP = OVERVIEW_HEIGHT + 26, FETCH_DELAY_MS = 90, NOTE_DELAY_MS = 400;
  const LANE_HEIGHTS = [22, 30], ROOM_BELOW = 190, LEAST_HEIGHT = 220;

  /* Read what SliceBatch.encode wrote. */
  function decode(buffer) {
    const count = new DataView(buffer).getUint32(0, true);
    let at = 8;
    const take = (Type) => { const column = new Type(buffer, at, count); at += column.byteLength; return column; };
    const columns = {
      count, start: take(Float64Array), end: take(Float64Array), node: take(Float64Array),
      lane: take(Int32Array), merged: take(Int32Array), name: take(Int32Array), kind: take(Uint8Array),
    };
    return Object.assign(columns, { names: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, at))) });
  }

  class TimelineState {
    constructor(holder) {
      this.holder = holder;
      this.canvas = holder.querySelector("canvas");
      this.context = this.canvas.getContext("2d");
      this.t0 = 0; this.t1 = 1; this.scroll = 0; this.sequence = 0; this.showPath = true;
      this.lanes = []; this.batch = null; this.selected = null; this.wanted = null; this.area = null;
    }

    async load(run, measured) {
      this.run = run; this.measured = measured; this.holder.dataset.selected = "";
      const reply = await fetch(`./api/lanes?${this.query({})}`);
      if (!reply.ok || run !== this.run || measured !== this.measured) { return; }
      const data = await reply.json(), again = this.kinds && this.loaded === run;
      Object.assign(this, { lanes: data.lanes, kinds: data.kinds, path: data.path, makespan: data.makespan_ns, loaded: run });
      Object.assign(this, { batch: null, overview: null, area: null });
      this.fitHeight();
      if (again) { this.refresh(); } else { this.firstWindow(); }
      if (this.wanted) { this.select(this.wanted); }
    }

    query(more) { return new URLSearchParams({ run: this.run, measured: this.measured ? 1 : 0, ...more }); }

    /* Take as much of the screen as the lanes need, and leave room for the details below. */
    fitHeight() {
      const top = this.holder.getBoundingClientRect().top + window.scrollY;
      const most = Math.max(LEAST_HEIGHT, window.innerHeight - top - ROOM_BELOW);
      const height = (lane) => TOP + this.lanes.length * lane + 10;
      this.laneHeight = height(LANE_HEIGHTS[1]) <= most ? LANE_HEIGHTS[1] : LANE_HEIGHTS[0];
      this.holder.style.height = `${Math.min(most, height(this.laneHeight))}px`;
      this.scroll = Math.min(this.scroll, this.mostScroll);
    }

    get width() { return Math.max(50, this.canvas.clientWidth - LABEL_WIDTH); }
    get height() { return this.canvas.clientHeight; }
    get mostScroll() { return Math.max(0, this.lanes.length * this.laneHeight + TOP + 8 - this.height); }
    x(t) { return LABEL_WIDTH + ((t - this.t0) / (this.t1 - this.t0)) * this.width; }
    t(x) { return this.t0 + ((x - LABEL_WIDTH) / this.width) * (this.t1 - this.t0); }
    y(lane) { return TOP + lane * this.laneHeight - this.scroll; }
    laneAt(y) { return Math.floor((y - TOP + this.scroll) / this.laneHeight); }

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
      this.scroll = Math.max(0, Math.min(this.mostScroll, this.scroll + pixels));
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
      const first = Math.max(0, Math.floor(this.scroll / this.laneHeight) - 4);
      const query = this.query({
        t0: Math.floor(this.t0 - span / 2), t1: Math.ceil(this.t1 + span / 2), px: 2 * this.width,
        lane0: first, lane1: first + Math.ceil(this.height / this.laneHeight) + 8,
      });
      const reply = await fetch(`./api/slices?${query}`);
      if (!reply.ok) { return; }
      const buffer = await reply.arrayBuffer();
      if (sequence === this.sequence) { this.batch = decode(buffer); this.draw(); this.ready(); }
    }

    ready() { this.holder.dataset.slices = this.batch.count; }
  }

  window.chakrascopeTimeline = { TimelineState, LABEL_WIDTH, OVERVIEW_HEIGHT, TOP };
})();
