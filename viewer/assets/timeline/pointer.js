/* The mouse on the canvas: hover, click, drag, wheel. */
import { element } from "./dom.js";
import { LABEL_WIDTH, OVERVIEW_HEIGHT } from "./view.js";

const { durationText } = window.chakrascopeUnits;
const LEAST_DRAG = 4;

export class Pointer {
  constructor(timeline) {
    // *at* is where the pointer is, *hovered* names the slice there; the tooltip of the *quiet* one is closed.
    Object.assign(this, { timeline, at: null, hovered: "", quiet: null, drag: null, tip: element("div", null, "timeline-tip") });
    const { canvas, holder } = timeline;
    holder.appendChild(this.tip);
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { this.at = null; this.hovered = ""; this.tip.style.display = "none"; });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /* Return the slice at a point: its row, and its place in the row's batch; or null. */
  hit(x, y) {
    const { rows, view } = this.timeline, row = rows.at(y);
    if (!row || !row.source.batch || x < LABEL_WIDTH) { return null; }
    const { batch } = row.source, t = view.t(x) - row.source.shift;
    let best = -1, nearest = 2 / view.scale;
    for (let i = 0; i < batch.count; i++) {
      if (batch.lane[i] !== row.lane) { continue; }
      const gap = Math.max(batch.start[i] - t, t - batch.end[i], 0);
      if (gap < nearest || (gap === nearest && gap === 0)) { best = i; nearest = gap; }
    }
    return best < 0 ? null : { row, batch, i: best, rank: row.group.rank, node: batch.node[best] };
  }

  /* Close the tooltip: it stays closed until the pointer leaves what it is of. */
  hideTip() {
    this.quiet = this.hovered;
    this.tip.style.display = "none";
  }

  async hover(x, y) {
    const { timeline, tip } = this, { canvas, rows, view } = timeline, hit = this.hit(x, y);
    const key = hit ? `${timeline.sources.indexOf(hit.row.source)}:${hit.row.lane}:${hit.i}:${hit.node}` : "";
    canvas.style.cursor = x < LABEL_WIDTH && rows.at(y) ? "pointer" : "";
    if (key !== this.hovered) {
      this.hovered = key; this.quiet = null;
      tip.style.display = "none";
      if (!hit) { return; }
      const node = await timeline.details(hit.row.source, hit.rank, hit.node);
      if (!node || this.hovered !== key || this.quiet === key) { return; }
      tip.textContent = tipText(hit, Object.fromEntries(node.details));
    } else if (!hit || this.quiet === key || !tip.textContent) { return; }
    tip.style.display = "block";
    tip.style.left = `${Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(0, Math.min(y + 14, view.height - tip.offsetHeight - 4))}px`;
  }

  click(x, y, shift) {
    const { timeline, timeline: { rows } } = this, row = rows.at(y), hit = this.hit(x, y);
    this.hideTip();
    if (row && x < LABEL_WIDTH) { rows.toggle(shift ? "hidden" : "pinned", row.group.rank); return; }
    if (hit && hit.row.isGroup) { this.markGroup(hit); return; }
    if (hit) { timeline.choose(hit.row.source, hit.rank, hit.node); }
  }

  /* A slice above others has no node of its own: its time is marked, and what is in it summed up. */
  markGroup({ row, batch, i }) {
    const { timeline } = this, { shift } = row.source;
    const isBelow = (each) => (row.thread ? each.thread === row.thread && each.place >= row.place : each.measured === row.measured);
    const below = timeline.rows.all.filter((each) => each.source === row.source && each.group === row.group && isBelow(each));
    timeline.mark(batch.start[i] + shift, batch.end[i] + shift, below);
    timeline.measure();
  }

  /* Mark the area between two points of the canvas, in time and rows. */
  markBetween(from, to) {
    const { rows, view } = this.timeline, ordered = (a, b) => a - b;
    const times = [view.t(from.x), view.t(to.x)].sort(ordered), places = [rows.placeAt(from.y), rows.placeAt(to.y)].sort(ordered);
    this.timeline.mark(...times, rows.all.slice(Math.max(0, places[0]), places[1] + 1));
  }

  down(event) {
    const { canvas, view } = this.timeline, at = { x: event.offsetX, y: event.offsetY };
    canvas.focus(); canvas.setPointerCapture(event.pointerId);
    const does = at.y < OVERVIEW_HEIGHT ? "jumps" : at.x < LABEL_WIDTH ? "names" : event.shiftKey ? "measures" : "pans";
    this.drag = { ...at, from: at, does, moved: false };
    if (does === "jumps") { view.jump(at.x); }
  }

  move(event) {
    const { drag, timeline: { rows, view } } = this, at = { x: event.offsetX, y: event.offsetY };
    this.at = at;
    if (!drag) { this.hover(at.x, at.y); return; }
    const dx = drag.x - at.x, dy = drag.y - at.y;
    if (!drag.moved && Math.abs(dx) + Math.abs(dy) < LEAST_DRAG) { return; }
    this.hideTip();
    if (drag.does === "measures") { this.markBetween(drag.from, at); }
    else if (drag.does === "jumps") { view.jump(at.x); }
    else { if (drag.does === "pans") { view.pan(dx); } rows.scrollBy(dy); }
    Object.assign(drag, at, { moved: true });
  }

  up(event) {
    const { drag } = this;
    this.drag = null;
    if (drag && drag.does === "measures" && drag.moved) { this.timeline.measure(); }
    else if (drag && !drag.moved && drag.does !== "jumps") { this.click(event.offsetX, event.offsetY, event.shiftKey); }
  }

  wheel(event) {
    const { rows, view } = this.timeline;
    event.preventDefault();
    this.hideTip();
    if (event.ctrlKey || event.metaKey) { view.zoom(Math.exp(event.deltaY * 0.002), event.offsetX); }
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { view.pan(event.deltaX || event.deltaY); }
    else { rows.scrollBy(event.deltaY); }
  }
}

function tipText({ row, batch, i }, facts) {
  const merged = batch.merged[i], span = durationText(batch.end[i] - batch.start[i]);
  if (row.thread) { return `${batch.name[i] >= 0 ? batch.names[batch.name[i]] : "calls"} · ${span}`; }
  if (row.isGroup) { return [batch.name[i] >= 0 ? batch.names[batch.name[i]] : row.label, span, `longest in it: ${facts.Name}`].join(" · "); }
  const times = row.measured ? `measured ${facts.Measured}` : facts.Simulated;
  return [facts.Name, times, facts.Module].filter(Boolean).join(" · ") + (merged > 1 ? ` · longest of ${merged} here` : "");
}
