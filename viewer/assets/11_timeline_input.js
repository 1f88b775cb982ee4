"use strict";
/* What the timeline does with the mouse and the keyboard: hover, select, measure an area, follow flows. */
(function () {
  const { Timeline, LABEL_WIDTH, AXIS_HEIGHT, LANE_HEIGHT } = window.chakrascopeTimeline;

  class TimelineInput extends Timeline {
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

    async details(rank, node, flows) {
      const query = new URLSearchParams({ run: this.run, rank, node, flows: flows ? 1 : 0 });
      const reply = await fetch(`./api/node?${query}`);
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
      if (i >= 0) { this.choose(this.lanes[this.batch.lane[i]].rank, this.batch.node[i]); }
    }

    /* Select a node on every page: the selection lives in the address. */
    choose(rank, node) {
      const query = new URLSearchParams(window.location.search);
      query.set("run", this.run);
      query.set("rank", rank);
      query.set("node", node);
      window.dash_clientside.set_props("url", { search: `?${query}` });
    }

    /* Sum up what lies in the marked area. */
    async measure() {
      const { x0, x1, y0, y1 } = this.area;
      const times = [this.t(Math.min(x0, x1)), this.t(Math.max(x0, x1))].map(Math.round);
      const lanes = [Math.min(y0, y1), Math.max(y0, y1)].map((y) => Math.floor((y - AXIS_HEIGHT + this.scroll) / LANE_HEIGHT));
      const query = new URLSearchParams({ run: this.run, t0: times[0], t1: times[1], lane0: lanes[0], lane1: lanes[1] + 1 });
      const reply = await fetch(`./api/area?${query}`), out = document.getElementById("timeline-details");
      if (reply.ok && out) { showDetails(out, await reply.json()); out.dataset.area = "yes"; }
      this.area = null;
      this.draw();
    }

    async select(selection) {
      this.wanted = selection;
      if (!this.kinds) { return; }
      const key = selection && selection.node >= 0 ? `${selection.rank}:${selection.node}` : "";
      if (key && key === this.holder.dataset.selected) { this.draw(); return; }
      const out = document.getElementById("timeline-details");
      if (!selection || selection.node < 0) { this.selected = null; this.holder.dataset.selected = ""; this.draw(); return; }
      this.selected = await this.details(selection.rank, selection.node, true);
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
        drag = { x: event.offsetX, y: event.offsetY, moved: false, measures: event.shiftKey };
        if (drag.measures) { this.area = { x0: drag.x, y0: drag.y, x1: drag.x, y1: drag.y }; }
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!drag) { this.hover(event.offsetX, event.offsetY); return; }
        const dx = drag.x - event.offsetX, dy = drag.y - event.offsetY;
        if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) { return; }
        this.tip.style.display = "none";
        if (drag.measures) {
          Object.assign(this.area, { x1: event.offsetX, y1: event.offsetY });
          drag.moved = true;
          this.draw();
          return;
        }
        this.pan(dx); this.scrollBy(dy);
        drag = { x: event.offsetX, y: event.offsetY, moved: true };
      });
      canvas.addEventListener("pointerup", (event) => {
        if (drag && drag.measures) { this.measure(); }
        else if (drag && !drag.moved) { this.click(event.offsetX, event.offsetY); }
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

    /* Go to the node whose end let the selected one start, or back along the way that led here. */
    walk(direction) {
      const node = this.selected;
      if (!node) { return; }
      if (direction > 0) {
        const next = this.walked && this.walked.pop();
        if (next) { this.choose(next.rank, next.node); }
      } else if (node.cause >= 0) {
        this.walked = [...(this.walked || []), { rank: node.rank, node: node.node }];
        this.choose(node.rank, node.cause);
      }
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) { return; }
      const step = this.width / 6;
      const actions = {
        w: () => this.zoom(0.7), s: () => this.zoom(1 / 0.7), a: () => this.pan(-step), d: () => this.pan(step),
        "[": () => this.walk(-1), "]": () => this.walk(1),
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
      if (!holder.timeline) { holder.timeline = new TimelineInput(holder); }
      const timeline = holder.timeline;
      if (timeline.run !== run) { timeline.load(run); } else { timeline.draw(); }
      timeline.select(selection);
      return window.dash_clientside.no_update;
    },
  });
})();
