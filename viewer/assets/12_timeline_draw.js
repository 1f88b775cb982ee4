"use strict";
/* Draws the timeline on its canvas: slices with their names, the critical path, arrows, the marked area. */
(function () {
  const { TimelineRows, LABEL_WIDTH, TOP } = window.chakrascopeTimeline;
  const { durationText } = window.chakrascopeUnits;
  const INK = { light: "#1f2933", dark: "#d5dbe1" }, LINE = { light: "#d9dee3", dark: "#3a4148" };
  const BAND = { light: "#f3f5f7", dark: "#1d2125" }, BESIDE = { light: "#fbf6ec", dark: "#262219" };
  const FOUND = { light: "#111820", dark: "#ffffff" }, NOTED = "#8a5cd0";
  const CHARACTER = 6.3, LEAST_TEXT = 30, LEAST_CROSSING = 6, MEASURED_ALPHA = 0.55, NOT_FOUND_ALPHA = 0.22;

  class TimelineDrawing extends TimelineRows {
    get scheme() { return this.holder.dataset.scheme === "dark" ? "dark" : "light"; }

    draw() {
      const canvas = this.canvas, context = this.context, ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(canvas.clientWidth * ratio) || canvas.height !== Math.round(canvas.clientHeight * ratio)) {
        canvas.width = Math.round(canvas.clientWidth * ratio); canvas.height = Math.round(canvas.clientHeight * ratio);
        this.overview = null;
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
      if (!this.sources.length) { return; }
      this.drawRegion(context, false, this.scrollTop, this.height);
      if (this.pinnedRows) {
        this.drawRegion(context, true, TOP, this.scrollTop);
        context.fillStyle = INK[this.scheme];
        context.fillRect(0, this.scrollTop - 2, LABEL_WIDTH + this.width, 1.5);
      }
      this.drawAxis(context, this.scheme);
      this.drawOverview(context, this.scheme, ratio);
      this.drawScrollbar(context, this.scheme);
    }

    /* Draw the rows that are pinned, or those that are not, into the part of the canvas that is theirs. */
    drawRegion(context, pinned, top, bottom) {
      context.save();
      context.beginPath();
      context.rect(0, top, LABEL_WIDTH + this.width, bottom - top);
      context.clip();
      this.drawBands(context, pinned);
      this.drawLabels(context, pinned);
      context.beginPath();
      context.rect(LABEL_WIDTH, top, this.width, bottom - top);
      context.clip();
      for (const source of this.sources) { this.drawSlices(context, source, pinned, top, bottom); }
      if (this.showPath) { for (const source of this.sources) { this.drawPath(context, source, pinned); } }
      this.drawFlows(context);
      this.drawSelected(context);
      this.drawNotes(context, pinned);
      this.drawArea(context, pinned, top, bottom);
      context.restore();
    }

    /* Tell measured rows from simulated ones, the run beside from the one shown, and one rank from the next. */
    drawBands(context, pinned) {
      let before = null;
      for (const row of this.rows) {
        const y = this.y(row), other = before && (before.group !== row.group || before.source !== row.source);
        if (row.pinned === pinned && y > -row.height && y < this.height) {
          if (row.measured || row.source !== this.main) {
            context.fillStyle = (row.source !== this.main ? BESIDE : BAND)[this.scheme];
            context.fillRect(0, y, LABEL_WIDTH + this.width, row.height);
          }
          if (other) { context.fillStyle = LINE[this.scheme]; context.fillRect(0, y - 3, LABEL_WIDTH + this.width, 1); }
        }
        before = row;
      }
    }

    drawSlices(context, source, pinned, top, bottom) {
      const batch = source.batch;
      if (!batch) { return; }
      const scale = this.width / (this.t1 - this.t0), right = LABEL_WIDTH + this.width, from = this.t0 - source.shift, seeks = Boolean(this.settings.seek);
      const rows = this.rows, tops = rows.map((row) => (row.pinned === pinned ? this.y(row) : -1e6)), dark = this.scheme === "dark";
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      for (let i = 0; i < batch.count; i++) {
        const place = source.rowOf[batch.lane[i]];
        if (place < 0) { continue; }
        const row = rows[place], y = tops[place], tall = row.height;
        if (y < top - tall || y > bottom) { continue; }
        const x = LABEL_WIDTH + (batch.start[i] - from) * scale, width = (batch.end[i] - batch.start[i]) * scale;
        if (x > right || x + width < LABEL_WIDTH) { continue; }
        const found = batch.found[i] === 1;
        context.globalAlpha = (row.measured ? MEASURED_ALPHA : 1) * (seeks && !found ? NOT_FOUND_ALPHA : 1);
        context.fillStyle = source.palette[batch.colour[i]];
        context.fillRect(x, y + 1, Math.max(width > 3 ? width - 0.5 : width, 0.6), tall - (row.isGroup ? 2 : 5));
        if (found) {
          context.fillStyle = FOUND[this.scheme];
          context.fillRect(x, y, Math.max(width, 2), 2.5);
        }
        if (batch.name[i] >= 0) {
          const faint = dark && (row.measured || (seeks && !found));
          context.globalAlpha = seeks && !found ? 0.6 : 1;
          context.fillStyle = faint ? INK.dark : source.ink;
          this.drawName(context, batch.names[batch.name[i]], x, width, y + tall / 2 - (row.isGroup ? 0 : 1), row.isGroup);
        }
        context.globalAlpha = 1;
      }
    }

    /* Write a name into the visible part of its slice, cut to what fits; of a module its own part of the name, if the whole is too long. */
    drawName(context, name, x, width, y, isGroup) {
      const left = Math.max(x, LABEL_WIDTH), room = Math.min(x + width, LABEL_WIDTH + this.width) - left - 6;
      if (room < LEAST_TEXT - 6) { return; }
      const most = Math.floor(room / CHARACTER);
      if (isGroup && name.length > most && name.includes(".")) { name = name.slice(name.lastIndexOf(".") + 1); }
      context.fillText(name.length <= most ? name : `${name.slice(0, most - 1)}…`, left + 3, y, room);
    }

    /* Segments that follow each other in a row are one line. A path that goes to and fro between two rows faster than can be seen
       would hide the slices between them: of such crossings one is drawn every few pixels. */
    drawPath(context, source, pinned) {
      const path = source.path, scale = this.width / (this.t1 - this.t0), zero = LABEL_WIDTH + (source.shift - this.t0) * scale, right = LABEL_WIDTH + this.width;
      context.fillStyle = path.colour;
      const crossed = new Map();
      let row = null, from = 0, to = 0;
      const flush = () => { if (row) { context.fillRect(from, this.y(row) + row.height - 4, Math.max(to - from, 0.6), 3); } };
      for (let i = 0; i < path.lane.length; i++) {
        const x = zero + path.start_ns[i] * scale, end = zero + path.end_ns[i] * scale, place = source.rowOf[path.lane[i]];
        const next = end < LABEL_WIDTH || x > right || place < 0 || this.rows[place].pinned !== pinned ? null : this.rows[place];
        if (next && next === row && x - to < 1) { to = end; continue; }
        flush();
        const pair = next && row && next !== row ? 1e6 * Math.min(this.y(row), this.y(next)) + Math.max(this.y(row), this.y(next)) : null;
        if (pair !== null && !(x - crossed.get(pair) < LEAST_CROSSING)) {
          crossed.set(pair, x);
          const above = Math.min(this.y(row) + row.height - 3, this.y(next) + next.height - 3), below = Math.max(this.y(row) + row.height - 3, this.y(next) + next.height - 3);
          context.fillRect(x - 0.6, above, 1.2, below - above);
        }
        row = next; from = x; to = end;
      }
      flush();
    }

    drawSelected(context) {
      const node = this.selected, row = node && this.rowOf(this.main, node.lane);
      if (!row) { return; }
      const x = this.x(node.start_ns), width = Math.max(this.x(node.end_ns) - x, 3);
      context.strokeStyle = INK[this.scheme];
      context.lineWidth = 2.5;
      context.strokeRect(x - 1, this.y(row), width + 2, row.height - 3);
    }

    /* Draw an arrow from each node the selected one waits for, and to each that waits for it. */
    drawFlows(context) {
      const node = this.selected, own = node && this.rowOf(this.main, node.lane);
      if (!own) { return; }
      for (const flow of node.flows || []) {
        const [from, to] = flow.before ? [flow, node] : [node, flow];
        const a = this.rowOf(this.main, from.lane), b = this.rowOf(this.main, to.lane);
        if (!a || !b) { continue; }
        const late = flow.before && flow.start_ns === flow.end_ns && flow.start_ns > node.start_ns;
        this.drawArrow(context, this.x(from.end_ns), this.y(a) + a.height / 2, this.x(late ? flow.start_ns : to.start_ns), this.y(b) + b.height / 2, flow.colour);
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

    /* The area keeps its place in time and rows, so it stays where it is while the window moves; so does its label. */
    drawArea(context, pinned, top, bottom) {
      const rows = this.area ? this.areaRows().filter((row) => row.pinned === pinned) : [];
      if (!rows.length) { return; }
      const last = rows[rows.length - 1], x = this.x(this.area.t0), y = this.y(rows[0]);
      const box = [x, y, this.x(this.area.t1) - x, this.y(last) + last.height - y];
      context.globalAlpha = 0.13;
      context.fillStyle = context.strokeStyle = INK[this.scheme];
      context.fillRect(...box);
      context.globalAlpha = 1;
      context.lineWidth = 1;
      context.strokeRect(...box);
      if (y + box[3] < top + 14 || y > bottom) { return; }
      const text = durationText(Math.round(this.area.t1 - this.area.t0));
      context.font = "600 12px system-ui, sans-serif";
      context.textBaseline = "middle";
      const left = Math.max(box[0], LABEL_WIDTH), wide = context.measureText(text).width + 8;
      if (left > LABEL_WIDTH + this.width || box[0] + box[2] < LABEL_WIDTH) { return; }
      context.fillRect(left, Math.max(top, y), wide, 16);
      context.fillStyle = this.scheme === "dark" ? INK.light : "#ffffff";
      context.fillText(text, left + 4, Math.max(top, y) + 8);
    }

    /* Mark what notes are about: a flag at a slice, a bracket over a range. */
    drawNotes(context, pinned) {
      for (const note of this.notes || []) {
        const row = note.node >= 0 ? this.rowOf(this.main, note.lane) : null, x = this.x(note.t0_ns), wide = Math.max(this.x(note.t1_ns) - x, 2);
        if (note.node >= 0 && (!row || row.pinned !== pinned)) { continue; }
        context.fillStyle = NOTED;
        const y = row ? this.y(row) : (pinned ? TOP : this.scrollTop) + 1;
        context.fillRect(x, y, wide, 3);
        context.beginPath();
        context.moveTo(x, y); context.lineTo(x + 9, y + 4); context.lineTo(x, y + 9);
        context.fill();
      }
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineDrawing, INK, LINE });
})();
