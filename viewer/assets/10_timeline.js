"use strict";
/* The timeline's state: which window of which runs is shown, and what of it has come from the server. */
(function () {
  const LABEL_WIDTH = 204, OVERVIEW_HEIGHT = 22, TOP = OVERVIEW_HEIGHT + 26, FETCH_DELAY_MS = 90, NOTE_DELAY_MS = 400;
  const ROWS_OF_MARGIN = 4;
  // What the timeline keeps in the address, and what each is when it is not there.
  const SETTINGS = { rows: "", colour: "kind", order: "rank", same: "", ranks: "", pinned: "", hidden: "", seek: "", beside: "", align: "" };

  /* Read what SliceBatch.encode wrote. */
  function decode(buffer) {
    const count = new DataView(buffer).getUint32(0, true);
    let at = 8;
    const take = (Type) => { const column = new Type(buffer, at, count); at += column.byteLength; return column; };
    const columns = {
      count, edition: new DataView(buffer).getUint32(4, true), start: take(Float64Array), end: take(Float64Array), node: take(Float64Array),
      lane: take(Int32Array), merged: take(Int32Array), name: take(Int32Array), colour: take(Uint8Array), found: take(Uint8Array),
    };
    return Object.assign(columns, { names: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, at))) });
  }

  /* Write whole numbers as ranges, such as 0-3,7. */
  function rangesText(numbers) {
    const parts = [];
    for (const number of [...numbers].sort((a, b) => a - b)) {
      const last = parts[parts.length - 1];
      if (last && number <= last[1] + 1) { last[1] = number; } else { parts.push([number, number]); }
    }
    return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
  }

  class TimelineState {
    constructor(holder) {
      this.holder = holder;
      this.canvas = holder.querySelector("canvas");
      this.context = this.canvas.getContext("2d");
      this.t0 = 0; this.t1 = 1; this.makespan = 1; this.scroll = 0; this.sequence = 0; this.showPath = true;
      this.sources = []; this.rows = []; this.selected = null; this.wanted = null; this.area = null;
      const query = new URLSearchParams(window.location.search);
      this.settings = {};
      for (const [name, usual] of Object.entries(SETTINGS)) { this.settings[name] = query.get(name) || usual; }
    }

    get isLoaded() { return this.sources.length > 0 && this.sources[0].run === this.run; }
    get main() { return this.sources[0]; }

    async load(run, measured) {
      const again = this.isLoaded && this.run === run, asked = {};
      this.run = run; this.measured = measured; this.asked = asked; this.holder.dataset.selected = "";
      const rows = { nested: 1, flat: 0 }[this.settings.rows], first = await this.source(run, rows === undefined ? "auto" : rows);
      const second = first && this.settings.beside ? await this.source(this.besideRun(), first.nested ? 1 : 0) : null;
      if (asked !== this.asked || !first) { return; }
      this.nested = first.nested;
      this.sources = [first, second].filter(Boolean);
      this.makespan = Math.max(...this.sources.map((source) => source.makespan));
      Object.assign(this, { overview: null, area: null });
      this.place();
      this.arrange();
      this.shown();
      this.fitHeight();
      if (again) { this.refresh(); } else { this.firstWindow(); }
      if (this.wanted) { this.select(this.wanted); }
    }

    /* Ask for the lanes again, and keep in its place the rank that is uppermost. */
    async loadAgain() {
      const top = this.rows.find((row) => !row.pinned && this.y(row) >= this.scrollTop - row.height), y = top && this.y(top);
      await this.load(this.run, this.measured);
      const same = top && this.rows.find((row) => !row.pinned && row.group.rank === top.group.rank && row.place === top.place);
      if (same) { this.scrollBy(this.y(same) - y); }
    }

    async source(run, nested) {
      const reply = await fetch(`./api/lanes?${this.query({ run, nested, ...this.colouring(run) })}`);
      if (!reply.ok) { this.say(`The timeline of ${run} cannot be read: the server answered ${reply.status}. Reload the page, or choose another run.`); return null; }
      this.say("");
      const data = await reply.json(), lanesOf = new Map(), lanes = [];
      // Lanes of a large run have numbers with room between those of one rank and the next.
      data.lanes.forEach((lane, i) => {
        const number = lane.lane === undefined ? i : lane.lane;
        lanes[number] = lane;
        if (!lanesOf.has(lane.rank)) { lanesOf.set(lane.rank, []); }
        lanesOf.get(lane.rank).push(number);
      });
      return { run, ...data, lanes, makespan: data.makespan_ns, lanesOf, batch: null, shift: 0, rowOf: new Int32Array(lanes.length).fill(-1) };
    }

    /* Say what went wrong where the slices would be. */
    say(text) {
      this.problem = this.problem || Object.assign(document.createElement("p"), { className: "timeline-problem" });
      this.problem.textContent = text;
      this.problem.setAttribute("role", "alert");
      if (text) { this.holder.appendChild(this.problem); } else { this.problem.remove(); }
    }

    query(more) { return new URLSearchParams({ run: this.run, measured: this.measured ? 1 : 0, nested: this.nested ? 1 : 0, ...more }); }

    /* What lies beside has the colours of what is shown. */
    colouring(run) { return { colour: this.settings.colour, ...(run === this.run ? {} : { like: this.run }) }; }

    /* Change a setting of the address; those that the server knows of are asked for anew. */
    set(name, value) {
      if (this.settings[name] === value) { return; }
      this.settings[name] = value;
      if (["rows", "colour", "beside"].includes(name)) { this.load(this.run, this.measured); }
      else { this.arrange(); this.shown(); this.refresh(); }
      this.note();
    }

    get width() { return Math.max(50, this.canvas.clientWidth - LABEL_WIDTH); }
    get height() { return this.canvas.clientHeight; }
    x(t) { return LABEL_WIDTH + ((t - this.t0) / (this.t1 - this.t0)) * this.width; }
    t(x) { return this.t0 + ((x - LABEL_WIDTH) / this.width) * (this.t1 - this.t0); }

    fit() { this.window(-0.01 * this.makespan, 1.01 * this.makespan); }

    window(t0, t1) {
      const span = Math.min(Math.max(t1 - t0, 20), 1.1 * this.makespan);
      const middle = (t0 + t1) / 2, low = -0.05 * this.makespan, high = 1.05 * this.makespan;
      this.t0 = Math.max(low, Math.min(middle - span / 2, high - span));
      this.t1 = this.t0 + span;
      this.refresh();
    }

    zoom(factor, x) {
      const at = this.t(x === undefined ? LABEL_WIDTH + this.width / 2 : Math.max(x, LABEL_WIDTH));
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
      this.note();
    }

    note() {
      clearTimeout(this.noting);
      this.noting = setTimeout(() => this.noteNow(), NOTE_DELAY_MS);
    }

    /* Write what is shown into the address without a step in the browser's history, so that it can be shared. Dash
       reads the address again only when told that it changed; unaware, it would put its own back at the next click. */
    noteNow() {
      if (!this.holder.isConnected) { return; }
      const query = new URLSearchParams(window.location.search);
      query.set("t0", Math.round(this.t0));
      query.set("t1", Math.round(this.t1));
      for (const [name, usual] of Object.entries(SETTINGS)) {
        if (this.settings[name] === usual) { query.delete(name); } else { query.set(name, this.settings[name]); }
      }
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
      const batches = await Promise.all(this.sources.map(async (source) => {
        const lanes = this.lanesInSight(source, ROWS_OF_MARGIN);
        if (!lanes.length) { return null; }
        const query = this.query({
          run: source.run, ...this.colouring(source.run), lanes: rangesText(lanes), px: Math.round(2 * this.width),
          t0: Math.floor(this.t0 - source.shift - span / 2), t1: Math.ceil(this.t1 - source.shift + span / 2),
        });
        if (this.settings.seek) { query.set("seek", this.settings.seek); }
        const reply = await fetch(`./api/slices?${query}`);
        return reply.ok ? decode(await reply.arrayBuffer()) : null;
      }));
      if (sequence !== this.sequence) { return; }
      // Only read, ranks of a large run tell how many lanes they have: with another edition than was known, others.
      if (this.sources.some((source, i) => batches[i] && batches[i].edition !== source.edition)) { this.loadAgain(); return; }
      this.sources.forEach((source, i) => { source.batch = batches[i] || source.batch; });
      this.draw();
      this.holder.dataset.slices = batches.reduce((sum, batch) => sum + (batch ? batch.count : 0), 0);
    }
  }

  window.chakrascopeTimeline = { TimelineState, LABEL_WIDTH, OVERVIEW_HEIGHT, TOP, rangesText };
})();
