"use strict";
/* What the timeline does with the mouse and the keyboard: hover, select, measure an area, follow waits. */
(function () {
  const { TimelineDrawing, LABEL_WIDTH, OVERVIEW_HEIGHT, TOP } = window.chakrascopeTimeline;
  const { durationText } = window.chakrascopeUnits;

  class TimelineInput extends TimelineDrawing {
    constructor(holder) {
      super(holder);
      this.tip = document.createElement("div");
      this.tip.className = "timeline-tip";
      holder.appendChild(this.tip);
      this.listen();
    }

    hit(x, y) {
      const batch = this.batch;
      if (!batch || x < LABEL_WIDTH || y < TOP) { return -1; }
      const lane = this.laneAt(y), slack = (this.t1 - this.t0) / this.width, t = this.t(x);
      let best = -1, nearest = 2 * slack;
      for (let i = 0; i < batch.count; i++) {
        if (batch.lane[i] !== lane) { continue; }
        const gap = Math.max(batch.start[i] - t, t - batch.end[i], 0);
        if (gap < nearest || (gap === nearest && gap === 0)) { best = i; nearest = gap; }
      }
      return best;
    }

    async details(rank, node, flows) {
      const reply = await fetch(`./api/node?${this.query({ rank, node, flows: flows ? 1 : 0 })}`);
      return reply.ok ? reply.json() : null;
    }

    async hover(x, y) {
      const i = this.hit(x, y), key = i < 0 ? "" : `${this.batch.lane[i]}:${this.batch.node[i]}`;
      if (key !== this.hovered) {
        this.hovered = key;
        this.tip.style.display = "none";
        if (i < 0) { return; }
        const merged = this.batch.merged[i], lane = this.lanes[this.batch.lane[i]];
        const found = await this.details(lane.rank, this.batch.node[i]);
        if (!found || this.hovered !== key) { return; }
        const facts = Object.fromEntries(found.details), also = merged > 1 ? ` · longest of ${merged} here` : "";
        const times = lane.measured ? `measured ${facts.Measured}` : facts.Simulated;
        this.tip.textContent = [facts.Name, times, facts.Module].filter(Boolean).join(" · ") + also;
      } else if (i < 0) { return; }
      this.tip.style.display = "block";
      this.tip.style.left = `${Math.max(0, Math.min(x + 14, this.canvas.clientWidth - this.tip.offsetWidth - 8))}px`;
      this.tip.style.top = `${Math.max(0, Math.min(y + 14, this.height - this.tip.offsetHeight - 4))}px`;
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

    /* Mark the area between two points of the canvas, in time and lanes. */
    mark(from, to) {
      const times = [this.t(from.x), this.t(to.x)].sort((a, b) => a - b), lanes = [this.laneAt(from.y), this.laneAt(to.y)].sort((a, b) => a - b);
      this.area = { t0: times[0], t1: times[1], lane0: Math.max(0, lanes[0]), lane1: Math.min(this.lanes.length, lanes[1] + 1) };
      this.draw();
    }

    /* Sum up what lies in the marked area. */
    async measure() {
      const { t0, t1, lane0, lane1 } = this.area, query = this.query({ t0: Math.round(t0), t1: Math.round(t1), lane0, lane1 });
      const reply = await fetch(`./api/area?${query}`), out = document.getElementById("timeline-details");
      if (reply.ok && out) { showArea(out, await reply.json(), query); out.dataset.area = "yes"; }
    }

    async select(selection) {
      this.wanted = selection;
      if (!this.kinds) { return; }
      const key = selection && selection.node >= 0 ? `${selection.rank}:${selection.node}` : "";
      if (key && key === this.holder.dataset.selected) { this.draw(); return; }
      if (!key) { this.selected = null; this.holder.dataset.selected = ""; this.draw(); return; }
      const found = await this.details(selection.rank, selection.node, true), out = document.getElementById("timeline-details");
      if (selection !== this.wanted) { return; }
      this.selected = found; this.area = null;
      if (out && found) { out.replaceChildren(list(found.details)); delete out.dataset.area; }
      this.holder.dataset.selected = found ? key : "";
      if (found) { this.reveal(found); }
      this.draw();
    }

    reveal(node) {
      const y = this.y(node.lane);
      if (y < TOP || y > this.height - this.laneHeight) { this.scrollBy(y - this.height / 2); }
      const x = this.x(node.start_ns), width = this.x(node.end_ns) - x;
      const outside = x + width < LABEL_WIDTH || x > LABEL_WIDTH + this.width;
      if (outside || width < 2) {
        const span = Math.max(60 * (node.end_ns - node.start_ns), 2000);
        const middle = (node.start_ns + node.end_ns) / 2;
        this.window(middle - span / 2, middle + span / 2);
      }
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
        const does = at.y < OVERVIEW_HEIGHT ? "jumps" : event.shiftKey ? "measures" : "pans";
        drag = { ...at, from: at, does, moved: false };
        if (does === "jumps") { this.jump(at.x); }
      });
      canvas.addEventListener("pointermove", (event) => {
        const at = { x: event.offsetX, y: event.offsetY };
        if (!drag) { this.hover(at.x, at.y); return; }
        const dx = drag.x - at.x, dy = drag.y - at.y;
        if (!drag.moved && Math.abs(dx) + Math.abs(dy) < 4) { return; }
        this.tip.style.display = "none";
        if (drag.does === "measures") { this.mark(drag.from, at); }
        else if (drag.does === "jumps") { this.jump(at.x); }
        else { this.pan(dx); this.scrollBy(dy); }
        Object.assign(drag, at, { moved: true });
      });
      canvas.addEventListener("pointerup", (event) => {
        if (drag && drag.does === "measures" && drag.moved) { this.measure(); }
        else if (drag && !drag.moved && drag.does !== "jumps") { this.click(event.offsetX, event.offsetY); }
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
      const resize = new ResizeObserver(() => { if (this.kinds && this.holder.isConnected) { this.refresh(); } });
      resize.observe(this.holder);
      const fit = () => { if (this.holder.isConnected) { this.fitHeight(); } else { window.removeEventListener("resize", fit); resize.disconnect(); } };
      window.addEventListener("resize", fit);
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

    /* Select the next slice of the lane, or the one before; the first of the window if none is selected. */
    step(direction) {
      const batch = this.batch, node = this.selected;
      if (!batch) { return; }
      const lane = node ? node.lane : this.lanes.findIndex((found) => !found.measured);
      let best = -1;
      for (let i = 0; i < batch.count; i++) {
        const ahead = node ? (batch.start[i] - node.start_ns) * direction : batch.start[i] - this.t0;
        if (batch.lane[i] !== lane || ahead <= 0 || (node && batch.node[i] === node.node)) { continue; }
        if (best < 0 || Math.abs(batch.start[i] - batch.start[best]) > 0 && ahead < (node ? (batch.start[best] - node.start_ns) * direction : batch.start[best] - this.t0)) { best = i; }
      }
      if (best >= 0) { this.choose(this.lanes[lane].rank, batch.node[best]); }
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) { return; }
      const shift = this.width / 6;
      const actions = {
        w: () => this.zoom(0.7), s: () => this.zoom(1 / 0.7), a: () => this.pan(-shift), d: () => this.pan(shift),
        "[": () => this.walk(-1), "]": () => this.walk(1), ",": () => this.step(-1), ".": () => this.step(1),
        f: () => this.fit(), p: () => { this.showPath = !this.showPath; this.draw(); },
        ArrowLeft: () => this.pan(-shift), ArrowRight: () => this.pan(shift),
        ArrowUp: () => this.scrollBy(-3 * this.laneHeight), ArrowDown: () => this.scrollBy(3 * this.laneHeight),
      };
      const action = actions[event.key] || actions[event.key.toLowerCase()];
      if (action) { event.preventDefault(); action(); }
    }
  }

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) { made.textContent = text; }
    if (className) { made.className = className; }
    return made;
  };

  function list(pairs) {
    const made = element("dl", undefined, "details");
    for (const [label, text] of pairs) {
      const pair = element("div");
      pair.append(element("dt", label), element("dd", text));
      made.append(pair);
    }
    return made;
  }

  /* Show what fills an area: totals, and its operators as a table that can be had whole as a file. */
  function showArea(out, found, query) {
    const links = element("span", "Export ", "exports");
    ["csv", "parquet"].forEach((extension, i) => {
      const link = element("a", extension === "csv" ? "CSV" : "Parquet", "text-link");
      link.href = `./export/area.${extension}?${query}`; link.download = `area.${extension}`;
      links.append(i ? " · " : "", link);
    });
    const table = element("table", undefined, "area-table"), head = element("tr");
    const shown = found.columns.filter((column) => column !== "measured_ns" || found.rows.some((row) => row.measured_ns > 0));
    const titles = { operator: "Operator", kind: "Kind", slices: "Slices", total_ns: "Total", mean_ns: "Mean", longest_ns: "Longest", measured_ns: "Measured total" };
    for (const column of shown) { head.append(element("th", titles[column] || column, column.endsWith("_ns") || column === "slices" ? "number" : "")); }
    table.append(head);
    for (const row of found.rows) {
      const line = element("tr");
      for (const column of shown) {
        const isTime = column.endsWith("_ns"), value = row[column];
        line.append(element("td", isTime ? durationText(Math.round(value)) : String(value), isTime || column === "slices" ? "number" : ""));
      }
      table.append(line);
    }
    const more = found.more > 0 ? [element("p", `and ${found.more} more operators, in the export`)] : [];
    out.replaceChildren(list(found.details), links, table, ...more);
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    timeline(run, scheme, measured, selection) {
      const holder = document.getElementById("timeline");
      if (!holder || !run) { return window.dash_clientside.no_update; }
      if (!holder.timeline) { holder.timeline = new TimelineInput(holder); }
      const timeline = holder.timeline, wanted = measured === true;
      if (timeline.run !== run || timeline.measured !== wanted) { timeline.load(run, wanted); } else { timeline.draw(); }
      timeline.select(selection);
      return window.dash_clientside.no_update;
    },
  });
})();
