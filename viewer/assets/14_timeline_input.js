"use strict";
/* What the timeline does with the mouse and the keyboard: hover, select, measure an area, follow waits. */
(function () {
  const { TimelineFrame, LABEL_WIDTH, OVERVIEW_HEIGHT, TOP } = window.chakrascopeTimeline;
  const SLIGHT = 1.02;

  class TimelineInput extends TimelineFrame {
    constructor(holder) {
      super(holder);
      this.turn = Promise.resolve();
      this.tip = document.createElement("div");
      this.tip.className = "timeline-tip";
      holder.appendChild(this.tip);
      this.listen();
    }

    /* Return the source and the place in its batch of the slice at a point, or null. */
    hit(x, y) {
      const place = this.rowAt(y), row = this.rows[place];
      if (!row || !row.source.batch || x < LABEL_WIDTH) { return null; }
      const batch = row.source.batch, slack = (this.t1 - this.t0) / this.width, t = this.t(x) - row.source.shift;
      let best = -1, nearest = 2 * slack;
      for (let i = 0; i < batch.count; i++) {
        if (batch.lane[i] !== row.lane) { continue; }
        const gap = Math.max(batch.start[i] - t, t - batch.end[i], 0);
        if (gap < nearest || (gap === nearest && gap === 0)) { best = i; nearest = gap; }
      }
      return best < 0 ? null : { row, batch, i: best, rank: row.group.rank, node: batch.node[best] };
    }

    async details(source, rank, node, flows) {
      const reply = await fetch(`./api/node?${this.query({ run: source.run, rank, node, flows: flows ? 1 : 0 })}`);
      return reply.ok ? reply.json() : null;
    }

    hideTip() {
      this.quiet = this.hovered;  // what was pointed at stays quiet until the pointer leaves it
      this.tip.style.display = "none";
    }

    async hover(x, y) {
      const hit = this.hit(x, y), key = hit ? `${this.sources.indexOf(hit.row.source)}:${hit.row.lane}:${hit.i}:${hit.node}` : "";
      this.canvas.style.cursor = x < LABEL_WIDTH && this.rows[this.rowAt(y)] ? "pointer" : "";
      if (key !== this.hovered) {
        this.hovered = key; this.quiet = null;
        this.tip.style.display = "none";
        if (!hit) { return; }
        const found = await this.details(hit.row.source, hit.rank, hit.node);
        if (!found || this.hovered !== key || this.quiet === key) { return; }
        this.tip.textContent = this.tipText(hit, Object.fromEntries(found.details));
      } else if (!hit || this.quiet === key || !this.tip.textContent) { return; }
      this.tip.style.display = "block";
      this.tip.style.left = `${Math.max(0, Math.min(x + 14, this.canvas.clientWidth - this.tip.offsetWidth - 8))}px`;
      this.tip.style.top = `${Math.max(0, Math.min(y + 14, this.height - this.tip.offsetHeight - 4))}px`;
    }

    tipText(hit, facts) {
      const { row, batch, i } = hit, merged = batch.merged[i], span = window.chakrascopeUnits.durationText(batch.end[i] - batch.start[i]);
      if (row.isGroup) { return [batch.name[i] >= 0 ? batch.names[batch.name[i]] : row.label, span, `longest in it: ${facts.Name}`].join(" · "); }
      const times = row.measured ? `measured ${facts.Measured}` : facts.Simulated;
      return [facts.Name, times, facts.Module].filter(Boolean).join(" · ") + (merged > 1 ? ` · longest of ${merged} here` : "");
    }

    click(x, y, shift) {
      this.hideTip();
      const row = this.rows[this.rowAt(y)], hit = this.hit(x, y);
      if (row && x < LABEL_WIDTH) { this.toggle(shift ? "hidden" : "pinned", row.group.rank); return; }
      if (hit && hit.row.isGroup) { this.selectGroup(hit); return; }
      if (hit) { this.choose(hit.rank, hit.node, hit.row.source); }
    }

    /* A slice above others has no node of its own: its time is marked, and what is in it summed up. */
    selectGroup({ row, batch, i }) {
      const below = this.rows.filter((each) => each.source === row.source && each.group === row.group && each.measured === row.measured);
      this.markRows(batch.start[i] + row.source.shift, batch.end[i] + row.source.shift, below);
      this.measure();
    }

    /* Select a node on every page: the selection lives in the address. */
    choose(rank, node, source = this.main) {
      if (source !== this.main) { this.showBeside(source, rank, node); return Promise.resolve(); }
      const query = new URLSearchParams(window.location.search);
      query.set("run", this.run);
      query.set("rank", rank);
      query.set("node", node);
      window.dash_clientside.set_props("url", { search: `?${query}` });
      return this.select({ rank, node });
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.isLoaded) { return; }
      const shift = this.width / 6, pointed = this.pointer && this.pointer.x > LABEL_WIDTH ? this.pointer.x : undefined;
      const then = (act) => () => this.next(act);
      const actions = {
        w: () => this.zoom(0.7, pointed), s: () => this.zoom(1 / 0.7, pointed), a: () => this.pan(-shift), d: () => this.pan(shift),
        "[": then(() => this.walk(-1)), "]": then(() => this.walk(1)), ",": then(() => this.step(-1)), ".": then(() => this.step(1)),
        f: () => this.fitSelected(), t: () => this.writeNote(), m: () => this.markSelected(), p: () => { this.showPath = !this.showPath; this.draw(); },
        n: then(() => this.seekNext(event.shiftKey ? -1 : 1)), "/": () => this.focusFind(), "?": () => this.toggleHelp(), Escape: () => this.escape(),
        ArrowLeft: () => this.pan(-shift), ArrowRight: () => this.pan(shift),
        ArrowUp: () => this.scrollBy(-3 * this.laneHeight), ArrowDown: () => this.scrollBy(3 * this.laneHeight),
      };
      const action = actions[event.key] || actions[event.key.toLowerCase()];
      if (action) { event.preventDefault(); this.hideTip(); action(); }
    }

    /* Do one thing after the other, however fast the keys come; what fails, as without a server, stops none after it. */
    next(act) { this.turn = this.turn.then(act).catch(() => undefined); }

    /* Mark the area between two points of the canvas, in time and rows. */
    mark(from, to) {
      const times = [this.t(from.x), this.t(to.x)].sort((a, b) => a - b), rows = [this.rowAt(from.y), this.rowAt(to.y)].sort((a, b) => a - b);
      this.markRows(...times, this.rows.slice(Math.max(0, rows[0]), rows[1] + 1));
    }

    markRows(t0, t1, rows) {
      this.area = { t0, t1, keys: new Set(rows.map((row) => this.rowKey(row))) };
      this.draw();
    }

    markSelected() {
      const node = this.selected;
      if (node && node.lane >= 0) { this.markRows(node.start_ns, node.end_ns, this.rows); this.measure(); }
    }

    rowKey(row) { return `${this.sources.indexOf(row.source)}:${row.lane}`; }
    areaRows() { return this.rows.filter((row) => this.area.keys.has(this.rowKey(row))); }

    async select(selection) {
      this.wanted = selection;
      if (!this.isLoaded) { return; }
      const key = selection && selection.node >= 0 ? `${selection.rank}:${selection.node}` : "";
      if (key && key === this.holder.dataset.selected) { this.draw(); return; }
      if (!key) { this.selected = null; this.holder.dataset.selected = ""; this.draw(); return; }
      const found = await this.details(this.main, selection.rank, selection.node, true);
      if (!this.wanted || key !== `${this.wanted.rank}:${this.wanted.node}`) { return; }
      this.selected = found; this.area = null;
      if (found) { this.showDetails(found.details); this.reveal(found); }
      this.holder.dataset.selected = found ? key : "";
      this.draw();
      await this.findCounterpart(found);
    }

    /* Bring the selected slice into sight: a rank that is hidden or filtered out is shown again. */
    reveal(node) {
      if (!this.rowOf(this.main, node.lane) && node.lane >= 0) {
        Object.assign(this.settings, { hidden: "", ranks: "" });
        this.arrange(); this.shown();
      }
      const row = this.rowOf(this.main, node.lane);
      if (row && !row.pinned) {
        const y = this.y(row);
        if (y < this.scrollTop || y > this.height - row.height) { this.scrollBy(y - (this.scrollTop + this.height) / 2); }
      }
      const x = this.x(node.start_ns), width = this.x(node.end_ns) - x;
      const outside = x + width < LABEL_WIDTH || x > LABEL_WIDTH + this.width;
      if (outside || width < 2) {
        const span = Math.max(60 * (node.end_ns - node.start_ns), 2000);
        const middle = (node.start_ns + node.end_ns) / 2;
        this.window(middle - span / 2, middle + span / 2);
      }
    }

    /* Fit what is marked or selected; if that is what is shown already, everything. */
    fitSelected() {
      const chosen = this.area || (this.selected && this.selected.lane >= 0 ? { t0: this.selected.start_ns, t1: this.selected.end_ns } : null);
      if (!chosen) { this.fit(); return; }
      const span = Math.max(chosen.t1 - chosen.t0, 20), room = 0.1 * span, wanted = [chosen.t0 - room, chosen.t0 + span + room];
      const isShown = Math.abs(this.t0 - wanted[0]) < (SLIGHT - 1) * span && Math.abs(this.t1 - wanted[1]) < (SLIGHT - 1) * span;
      if (isShown) { this.fit(); } else { this.window(...wanted); }
    }

    /* Centre the window on a place of the overview. */
    jump(x) {
      const t = ((x - LABEL_WIDTH) / this.width) * this.makespan, half = (this.t1 - this.t0) / 2;
      this.window(t - half, t + half);
    }

    listen() {
      const canvas = this.canvas;
      let drag = null;
      canvas.addEventListener("pointerdown", (event) => {
        canvas.focus(); canvas.setPointerCapture(event.pointerId);
        const at = { x: event.offsetX, y: event.offsetY };
        const does = at.y < OVERVIEW_HEIGHT ? "jumps" : at.x < LABEL_WIDTH ? "names" : event.shiftKey ? "measures" : "pans";
        drag = { ...at, from: at, does, moved: false };
        if (does === "jumps") { this.jump(at.x); }
      });
      canvas.addEventListener("pointermove", (event) => {
        const at = { x: event.offsetX, y: event.offsetY };
        this.pointer = at;
        if (!drag) { this.hover(at.x, at.y); return; }
        const dx = drag.x - at.x, dy = drag.y - at.y;
        if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) { return; }
        this.hideTip();
        if (drag.does === "measures") { this.mark(drag.from, at); }
        else if (drag.does === "jumps") { this.jump(at.x); }
        else { if (drag.does === "pans") { this.pan(dx); } this.scrollBy(dy); }
        Object.assign(drag, at, { moved: true });
      });
      canvas.addEventListener("pointerup", (event) => {
        if (drag && drag.does === "measures" && drag.moved) { this.measure(); }
        else if (drag && !drag.moved && drag.does !== "jumps") { this.click(event.offsetX, event.offsetY, event.shiftKey); }
        drag = null;
      });
      canvas.addEventListener("pointerleave", () => { this.pointer = null; this.hovered = ""; this.tip.style.display = "none"; });
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        this.hideTip();
        if (event.ctrlKey || event.metaKey) { this.zoom(Math.exp(event.deltaY * 0.002), event.offsetX); }
        else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { this.pan(event.deltaX || event.deltaY); }
        else { this.scrollBy(event.deltaY); }
      }, { passive: false });
      this.listenWhileShown();
    }

    /* Keys work wherever the focus is, unless something is being typed; all of it ends with the page. */
    listenWhileShown() {
      const isTyping = (target) => target instanceof Element && target.closest("input, textarea, select, [contenteditable], [role='dialog'], [role='listbox']");
      const key = (event) => { if (!event.defaultPrevented && !isTyping(event.target)) { this.key(event); } };
      const fit = () => { this.fitHeight(); this.refresh(); }, scroll = () => this.hideTip();
      const resize = new ResizeObserver(() => { if (this.isLoaded) { this.refresh(); } });
      const ends = [];
      const listen = (target, name, act) => {
        const guarded = (event) => { if (this.holder.isConnected) { act(event); } else { ends.forEach((end) => end()); resize.disconnect(); } };
        target.addEventListener(name, guarded);
        ends.push(() => target.removeEventListener(name, guarded));
      };
      listen(document, "keydown", key);
      listen(window, "resize", fit);
      listen(window, "scroll", scroll);
      resize.observe(this.holder);
    }

    /* Go to the node whose end let the selected one start, or back along the way that led here. */
    walk(direction) {
      const node = this.selected;
      if (!node) { return undefined; }
      if (direction > 0) {
        const next = this.walked && this.walked.pop();
        return next ? this.choose(next.rank, next.node) : undefined;
      }
      if (node.cause < 0) { return undefined; }
      this.walked = [...(this.walked || []), { rank: node.rank, node: node.node }];
      return this.choose(node.rank, node.cause);
    }

    /* Select the next slice of the lane, or the one before; the first of the window if none is selected. */
    step(direction) {
      const batch = this.main.batch, node = this.selected;
      if (!batch) { return undefined; }
      const first = this.rows.find((row) => row.source === this.main && !row.isGroup && !row.measured);
      const own = node ? this.rowOf(this.main, node.lane) : first;
      if (!own) { return undefined; }
      const from = node ? node.start_ns : this.t0;
      let best = -1, nearest = Infinity;
      for (let i = 0; i < batch.count; i++) {
        const ahead = (batch.start[i] - from) * (node ? direction : 1);
        if (batch.lane[i] !== own.lane || ahead <= 0 || ahead >= nearest || (node && batch.node[i] === node.node)) { continue; }
        best = i; nearest = ahead;
      }
      return best >= 0 ? this.choose(node ? node.rank : own.group.rank, batch.node[best]) : undefined;
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineInput });
})();
