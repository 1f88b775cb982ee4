/* Draws what surrounds the slices: the labels of rows, the axis, the overview of the whole step, the scroll bar. */
import { ranksText } from "./ranks.js";
import { ORDERS } from "./rows.js";
import { LABEL_WIDTH, OVERVIEW_HEIGHT, TOP } from "./view.js";

const { durationText, instantText } = window.chakrascopeUnits;
export const INK = { light: "#1f2933", dark: "#d5dbe1" };
const AXIS_LABEL = 110, RANK_WIDTH = 100;
const ORDER_WORDS = { finish: "ends", exposed: "exposed", waiting: "waits" };

/* Name each row, and at the first ones of a rank the rank, how many others did the same, and what it is sorted by. */
export function paintLabels(timeline, pinned) {
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
    context.font = `${row.measured ? "italic " : ""}${row.isGroup ? "11px" : "12px"} system-ui, sans-serif`;
    context.globalAlpha = 0.75;
    context.fillText(row.label, RANK_WIDTH + 6, y, LABEL_WIDTH - RANK_WIDTH - 12);
    context.globalAlpha = 1;
  }
}

/* Return the texts at the left of a rank's rows, one a row. */
function rankFacts({ settings, sources }, row) {
  const { ranks, facts, stood_in: star } = row.group, many = ranks.length > 1, pin = row.pinned ? "▲ " : "";
  const texts = [`${pin}rank${many ? "s" : ""} ${ranksText(ranks)}${star ? "*" : ""}`];
  if (many) { texts.push(`${ranks.length} equal ranks`); }
  const column = ORDERS[settings.order];
  if (column) { texts.push(`${ORDER_WORDS[settings.order]} ${durationText(facts[column])}`); }
  if (sources.length > 1) { texts.push(row.source.name); }
  return texts;
}

/* Where ticks are closer than a label has digits for, they count from the leftmost, which stands in the corner. */
export function paintAxis({ context, view, scheme }) {
  context.fillStyle = INK[scheme];
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const rough = view.span / Math.max(2, view.width / AXIS_LABEL), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough), first = Math.ceil(view.t0 / step) * step;
  // A label has three digits.
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

/* The whole step in one line, in the colours of what its critical path does; the frame is the window shown. */
export function paintOverview(timeline, ratio) {
  const { context, view, scheme } = timeline, tall = OVERVIEW_HEIGHT - 8;
  timeline.overview = timeline.overview || overviewOf(timeline.main.path, view, ratio, tall);
  context.drawImage(timeline.overview, LABEL_WIDTH, 4, view.width, tall);
  context.fillStyle = context.strokeStyle = INK[scheme];
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.globalAlpha = 0.75;
  context.fillText("critical path", 8, 4 + tall / 2, LABEL_WIDTH - 16);
  context.globalAlpha = 1;
  const at = (t) => LABEL_WIDTH + Math.max(0, Math.min(1, t / view.makespan)) * view.width;
  context.lineWidth = 1.5;
  context.strokeRect(at(view.t0) + 1, 2, Math.max(3, at(view.t1) - at(view.t0) - 2), tall + 4);
}

function overviewOf(path, view, ratio, tall) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(view.width * ratio); canvas.height = Math.ceil(tall * ratio);
  const context = canvas.getContext("2d"), scale = canvas.width / view.makespan;
  for (let i = 0; i < path.lane.length; i++) {
    context.fillStyle = path.kind[i];
    context.fillRect(path.start_ns[i] * scale, 0, Math.max(0.6, (path.end_ns[i] - path.start_ns[i]) * scale), canvas.height);
  }
  return canvas;
}

export function paintScrollbar({ context, rows, view, scheme }) {
  if (!rows.mostScroll) { return; }
  const room = view.height - rows.top - 4, tall = Math.max(24, room * (room / (room + rows.mostScroll)));
  context.globalAlpha = 0.35;
  context.fillStyle = INK[scheme];
  context.fillRect(view.right - 6, rows.top + 2 + (room - tall) * (rows.scroll / rows.mostScroll), 4, tall);
  context.globalAlpha = 1;
}
