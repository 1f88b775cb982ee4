/* Draws the timeline: the slices, the critical path, the labels of rows, the axis, the overview and the scroll bar. */
import { ranksText } from "./address.js";
import { LABEL_WIDTH, ORDERS, OVERVIEW_HEIGHT, TOP } from "./rows.js";

const { durationText, instantText } = window.chakrascopeUnits;
const LINE = { light: "#d9dee3", dark: "#3a4148" };
const BAND = { light: "#f3f5f7", dark: "#1d2125" }, BESIDE = { light: "#fbf6ec", dark: "#262219" };
const FOUND = { light: "#111820", dark: "#ffffff" }, NOTED = "#8a5cd0";
const CHARACTER = 6.3, MIN_TEXT = 30, MIN_CROSSING = 6, CALL_ALPHA = 0.55, NOT_FOUND_ALPHA = 0.22, COUNTERPART = [4, 3];

export function paint(timeline) {
  const { canvas, context, rows, view, scheme } = timeline, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(canvas.clientWidth * ratio) || canvas.height !== Math.round(canvas.clientHeight * ratio)) {
    canvas.width = Math.round(canvas.clientWidth * ratio); canvas.height = Math.round(canvas.clientHeight * ratio);
    timeline.overview = null;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  if (!timeline.sources.length) { return; }
  paintRegion(timeline, false, rows.top, view.height);
  if (rows.pinnedCount) {
    paintRegion(timeline, true, TOP, rows.top);
    context.fillStyle = INK[scheme];
    context.fillRect(0, rows.top - 2, view.right, 1.5);
  }
  paintAxis(timeline);
  paintOverview(timeline, ratio);
  paintScrollbar(timeline);
}

/* Draw the pinned rows, or the rows that are not pinned, into their region of the canvas. */
function paintRegion(timeline, pinned, top, bottom) {
  const { context, view, sources } = timeline;
  context.save();
  context.beginPath();
  context.rect(0, top, view.right, bottom - top);
  context.clip();
  paintBands(timeline, pinned);
  paintLabels(timeline, pinned);
  context.beginPath();
  context.rect(LABEL_WIDTH, top, view.width, bottom - top);
  context.clip();
  for (const source of sources) { paintSlices(timeline, source, pinned, top, bottom); }
  if (timeline.showPath) { for (const source of sources) { paintPath(timeline, source, pinned); } }
  paintFlows(timeline);
  paintSelected(timeline);
  paintNotes(timeline, pinned);
  paintArea(timeline, pinned, top, bottom);
  context.restore();
}

/* Draw the background of host calls and of compared runs, and lines between ranks. */
function paintBands(timeline, pinned) {
  const { context, rows, view, scheme, main } = timeline;
  let before = null;
  for (const row of rows.all) {
    if (!row.height) { continue; }
    const y = rows.y(row), other = before && (before.group !== row.group || before.source !== row.source);
    if (row.pinned === pinned && y > -row.height && y < view.height) {
      if (row.thread || row.source !== main) {
        context.fillStyle = (row.source !== main ? BESIDE : BAND)[scheme];
        context.fillRect(0, y, view.right, row.height);
      }
      if (other) { context.fillStyle = LINE[scheme]; context.fillRect(0, y - 3, view.right, 1); }
    }
    before = row;
  }
}

function paintSlices(timeline, source, pinned, top, bottom) {
  const { context, rows: { all }, rows, view, scheme } = timeline, { batch } = source;
  if (!batch) { return; }
  const { scale, right } = view, from = view.t0 - source.shift, seeks = Boolean(timeline.settings.seek);
  const tops = all.map((row) => (row.pinned === pinned ? rows.y(row) : -1e6)), dark = scheme === "dark";
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (let i = 0; i < batch.count; i++) {
    const place = source.rowOf[batch.lane[i]];
    if (place < 0) { continue; }
    const row = all[place], y = tops[place], tall = row.height;
    if (!tall || y < top - tall || y > bottom) { continue; }
    const x = LABEL_WIDTH + (batch.start[i] - from) * scale, width = (batch.end[i] - batch.start[i]) * scale;
    if (x > right || x + width < LABEL_WIDTH) { continue; }
    const isHit = batch.found[i] === 1, isFaint = seeks && !isHit;
    context.globalAlpha = (row.thread ? CALL_ALPHA : 1) * (isFaint ? NOT_FOUND_ALPHA : 1);
    context.fillStyle = source.palette[batch.colour[i]];
    context.fillRect(x, y + 1, Math.max(width > 3 ? width - 0.5 : width, 0.6), tall - (row.isGroup ? 2 : 5));
    if (isHit) {
      context.fillStyle = FOUND[scheme];
      context.fillRect(x, y, Math.max(width, 2), 2.5);
    }
    if (batch.name[i] >= 0) {
      context.globalAlpha = isFaint ? 0.6 : 1;
      context.fillStyle = dark && (row.thread || isFaint) ? INK.dark : source.ink;
      paintName(context, batch.names[batch.name[i]], x, width, y + tall / 2 - (row.isGroup ? 0 : 1), right, row.isGroup);
    }
    context.globalAlpha = 1;
  }
}

/* Write a name into the visible part of its slice, truncated to fit. A long name of a module is shortened to its last part.
   The name of a function with its file, such as "forward (layer.py)", is never shortened in this way. */
function paintName(context, name, x, width, y, right, isGroup) {
  const left = Math.max(x, LABEL_WIDTH), room = Math.min(x + width, right) - left - 6;
  if (room < MIN_TEXT - 6) { return; }
  const most = Math.floor(room / CHARACTER);
  if (isGroup && name.length > most && name.includes(".") && !name.includes("(")) { name = name.slice(name.lastIndexOf(".") + 1); }
  context.fillText(name.length <= most ? name : `${name.slice(0, most - 1)}…`, left + 3, y, room);
}

/* Draw the critical path; consecutive segments on one row form one line. Segments are drawn at the times of their nodes, as
   each rank of a measured run has a separate clock. If the path crosses between two rows several times within a few pixels,
   only one crossing is drawn, so that the slices between the rows stay visible. */
function paintPath({ context, rows, view }, source, pinned) {
  const { path } = source, { scale, right } = view, zero = LABEL_WIDTH + (source.shift - view.t0) * scale;
  const bottom = (row) => rows.y(row) + row.height;
  context.fillStyle = path.colour;
  const crossed = new Map();
  let row = null, from = 0, to = 0;
  const flush = () => { if (row) { context.fillRect(from, bottom(row) - 4, Math.max(to - from, 0.6), 3); } };
  for (let i = 0; i < path.lane.length; i++) {
    const own = zero - path.shift_ns[i] * scale, place = source.rowOf[path.lane[i]];
    const x = own + path.start_ns[i] * scale, end = own + path.end_ns[i] * scale;
    const next = end < LABEL_WIDTH || x > right || place < 0 || rows.all[place].pinned !== pinned ? null : rows.all[place];
    if (next && next === row && Math.abs(x - to) < 1) { to = end; continue; }
    flush();
    if (next && row && next !== row) {
      const [above, below] = [bottom(row) - 3, bottom(next) - 3].sort((a, b) => a - b), pair = 1e6 * above + below;
      if (!(x - crossed.get(pair) < MIN_CROSSING)) {
        crossed.set(pair, x);
        context.fillRect(x - 0.6, above, 1.2, below - above);
      }
    }
    row = next; from = x; to = end;
  }
  flush();
}

/* Draw a frame around the selected slice, and dashed frames around its counterparts in compared runs. */
function paintSelected(timeline) {
  const { context, rows, view, selection: { node }, beside: { others } } = timeline;
  const framed = [[timeline.main, node, []], ...others.map((source) => [source, node && source.counterpart, COUNTERPART])];
  for (const [source, slice, dashes] of framed) {
    const row = source && slice && rows.of(source, slice.lane);
    if (!row) { continue; }
    const x = view.x(slice.start_ns + source.shift), width = Math.max(view.x(slice.end_ns + source.shift) - x, 3);
    context.strokeStyle = INK[timeline.scheme];
    context.lineWidth = 2.5;
    context.setLineDash(dashes);
    context.strokeRect(x - 1, rows.y(row), width + 2, row.height - 3);
    context.setLineDash([]);
  }
}

/* Draw arrows from the dependencies of the selected node to the node, and from the node to its dependents. */
function paintFlows({ context, rows, view, main, selection: { node } }) {
  if (!node || !rows.of(main, node.lane)) { return; }
  for (const flow of node.flows || []) {
    const [from, to] = flow.before ? [flow, node] : [node, flow], a = rows.of(main, from.lane), b = rows.of(main, to.lane);
    if (!a || !b) { continue; }
    const late = flow.before && flow.start_ns === flow.end_ns && flow.start_ns > node.start_ns;
    paintArrow(context, view.x(from.end_ns), rows.y(a) + a.height / 2, view.x(late ? flow.start_ns : to.start_ns), rows.y(b) + b.height / 2, flow.colour);
  }
}

function paintArrow(context, x0, y0, x1, y1, colour) {
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

/* Draw the marked area and its label; the area keeps its time interval and rows while the window moves. */
function paintArea({ context, rows, view, area, scheme }, pinned, top, bottom) {
  const marked = area ? area.rows().filter((row) => row.pinned === pinned) : [];
  if (!marked.length) { return; }
  const last = marked[marked.length - 1], x = view.x(area.t0), y = rows.y(marked[0]);
  const box = [x, y, view.x(area.t1) - x, rows.y(last) + last.height - y];
  context.globalAlpha = 0.13;
  context.fillStyle = context.strokeStyle = INK[scheme];
  context.fillRect(...box);
  context.globalAlpha = 1;
  context.lineWidth = 1;
  context.strokeRect(...box);
  if (y + box[3] < top + 14 || y > bottom) { return; }
  const text = durationText(Math.round(area.t1 - area.t0));
  context.font = "600 12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const left = Math.max(box[0], LABEL_WIDTH), wide = context.measureText(text).width + 8;
  if (left > view.right || box[0] + box[2] < LABEL_WIDTH) { return; }
  context.fillRect(left, Math.max(top, y), wide, 16);
  context.fillStyle = scheme === "dark" ? INK.light : "#ffffff";
  context.fillText(text, left + 4, Math.max(top, y) + 8);
}

/* Draw flags at the subjects of notes, which are slices or time ranges. */
function paintNotes({ context, rows, view, main, notes }, pinned) {
  for (const note of notes.all) {
    const row = note.node >= 0 ? rows.of(main, note.lane) : null, x = view.x(note.t0_ns), wide = Math.max(view.x(note.t1_ns) - x, 2);
    if (notes.isElsewhere(note) || (note.node >= 0 && (!row || row.pinned !== pinned))) { continue; }
    context.fillStyle = NOTED;
    const y = row ? rows.y(row) : (pinned ? TOP : rows.top) + 1;
    context.fillRect(x, y, wide, 3);
    context.beginPath();
    context.moveTo(x, y); context.lineTo(x + 9, y + 4); context.lineTo(x, y + 9);
    context.fill();
  }
}

const INK = { light: "#1f2933", dark: "#d5dbe1" };
const AXIS_LABEL = 110, RANK_WIDTH = 100;
const ORDER_WORDS = { finish: "ends", exposed: "exposed", waiting: "waits" };

/* Draw the label of each row; the first rows of a rank also show the rank, the number of equal ranks and the sort key. */
function paintLabels(timeline, pinned) {
  const { context, rows, view, scheme } = timeline;
  context.textBaseline = "middle";
  context.fillStyle = INK[scheme];
  for (const row of rows.all) {
    const y = rows.y(row) + row.height / 2;
    if (row.pinned !== pinned || !row.height || y < TOP - row.height || y > view.height + row.height) { continue; }
    const facts = rankFacts(timeline, row);
    if (row.line < facts.length) {
      context.font = row.line ? "11px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
      context.globalAlpha = row.line ? 0.75 : 1;
      context.fillText(facts[row.line], 8, y, RANK_WIDTH - 8);
    }
    context.font = `${row.thread ? "italic " : ""}${row.isGroup ? "11px" : "12px"} system-ui, sans-serif`;
    context.globalAlpha = 0.75;
    context.fillText(row.label, RANK_WIDTH + 6, y, LABEL_WIDTH - RANK_WIDTH - 12);
    context.globalAlpha = 1;
  }
}

/* Return the texts about a rank that are drawn to the left of its rows, one text per row. */
function rankFacts({ settings, sources }, row) {
  const { ranks, facts, replaced: star } = row.group, many = ranks.length > 1, pin = row.pinned ? "▲ " : "";
  const texts = [`${pin}rank${many ? "s" : ""} ${ranksText(ranks)}${star ? "*" : ""}`];
  if (many) { texts.push(`${ranks.length} equal ranks`); }
  const column = ORDERS[settings.order];
  if (column) { texts.push(`${ORDER_WORDS[settings.order]} ${durationText(facts[column])}`); }
  if (sources.length > 1) { texts.push(row.source.name); }
  return texts;
}

/* Draw the time axis. If three digits cannot distinguish neighbouring ticks, tick labels count from the leftmost tick. */
function paintAxis({ context, view, scheme }) {
  context.fillStyle = INK[scheme];
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const rough = view.span / Math.max(2, view.width / AXIS_LABEL), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough), first = Math.ceil(view.t0 / step) * step;
  // Tick labels have three significant digits.
  const isFine = first > 0 && step < 10 ** (Math.floor(Math.log10(Math.max(view.t1, 1))) - 2), base = isFine ? first : 0;
  if (isFine) { context.fillText(`${instantText(Math.round(base), Math.min(step, 1000))} +`, 8, TOP - 14, LABEL_WIDTH - 16); }
  for (let t = first; t <= view.t1; t += step) {
    const x = view.x(t), text = durationText(Math.round(t - base));
    context.globalAlpha = 0.25;
    context.fillRect(x, TOP - 8, 1, 8);
    context.globalAlpha = 1;
    if (x + 4 + context.measureText(text).width < view.right) { context.fillText(text, x + 4, TOP - 14); }
  }
  context.globalAlpha = 0.25;
  context.fillRect(0, TOP - 1, view.right, 1);
  context.globalAlpha = 1;
}

/* Draw the overview: the critical path of the whole step by kind, with a frame around the current window. */
function paintOverview(timeline, ratio) {
  const { context, view, scheme } = timeline, tall = OVERVIEW_HEIGHT - 8;
  timeline.overview = timeline.overview || overviewOf(timeline.main.path, view, ratio, tall);
  context.drawImage(timeline.overview, LABEL_WIDTH, 4, view.width, tall);
  context.fillStyle = context.strokeStyle = INK[scheme];
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.globalAlpha = 0.75;
  context.fillText("critical path", 8, 4 + tall / 2, LABEL_WIDTH - 16);
  context.globalAlpha = 1;
  const at = (t) => LABEL_WIDTH + Math.max(0, Math.min(1, (t - view.start) / view.whole)) * view.width;
  context.lineWidth = 1.5;
  context.strokeRect(at(view.t0) + 1, 2, Math.max(3, at(view.t1) - at(view.t0) - 2), tall + 4);
}

function overviewOf(path, view, ratio, tall) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(view.width * ratio); canvas.height = Math.ceil(tall * ratio);
  const context = canvas.getContext("2d"), scale = canvas.width / view.whole;
  for (let i = 0; i < path.lane.length; i++) {
    context.fillStyle = path.kind[i];
    context.fillRect((path.start_ns[i] - view.start) * scale, 0, Math.max(0.6, (path.end_ns[i] - path.start_ns[i]) * scale), canvas.height);
  }
  return canvas;
}

function paintScrollbar({ context, rows, view, scheme }) {
  if (!rows.mostScroll) { return; }
  const room = view.height - rows.top - 4, tall = Math.max(24, room * (room / (room + rows.mostScroll)));
  context.globalAlpha = 0.35;
  context.fillStyle = INK[scheme];
  context.fillRect(view.right - 6, rows.top + 2 + (room - tall) * (rows.scroll / rows.mostScroll), 4, tall);
  context.globalAlpha = 1;
}
