/* A marked part of the canvas, in time and rows, and a summary of the slices in it. */
import { element, exportLinks, list, table } from "./dom.js";
import { rangesText } from "./ranks.js";
import { ask } from "./server.js";

const { durationText } = window.chakrascopeUnits;
const TITLES = {
  operator: "Operator", name: "Name", row: "Row", kind: "Kind", slices: "Slices", total_ns: "Total", mean_ns: "Mean", longest_ns: "Longest",
  measured_ns: "Measured total",
};

export class Area {
  constructor(timeline, t0, t1, rows) {
    Object.assign(this, { timeline, t0, t1, keys: new Set(rows.map((row) => this.key(row, timeline))) });
  }

  /* Lanes may get other numbers while ranks are read. */
  key(row, { sources } = this.timeline) { return `${sources.indexOf(row.source)}:${row.group.rank}:${row.place}`; }

  /* Return the rows marked: also after they were made anew. */
  rows() { return this.timeline.rows.all.filter((row) => this.keys.has(this.key(row))); }

  /* Return the summary as elements, of each run that has rows in the area. */
  async measure() {
    const { sources } = this.timeline, parts = [];
    for (const source of sources) {
      const lanes = this.rows().filter((row) => row.source === source).map((row) => row.lane);
      if (!lanes.length) { continue; }
      const query = this.timeline.query({ run: source.run, t0: Math.round(this.t0 - source.shift), t1: Math.round(this.t1 - source.shift), lanes: rangesText(lanes) });
      const found = await ask("area", query);
      if (found) { parts.push(...this.title(source), ...summary(found, query)); }
    }
    return parts;
  }

  title(source) {
    return this.timeline.sources.length < 2 ? [] : [element("p", source.title, "side-title")];
  }
}

/* Return totals, and the slices by name as a table whose export is complete. */
function summary(found, query) {
  const columns = found.columns.filter((column) => column !== "measured_ns" || found.rows.some((row) => row.measured_ns > 0));
  const isTime = (column) => column.endsWith("_ns"), isNumber = (column) => isTime(column) || column === "slices";
  const numbers = [...columns.keys()].filter((i) => isNumber(columns[i]));
  const text = (value, column) => (isTime(column) ? durationText(Math.round(value)) : isNumber(column) ? value.toLocaleString("en") : value);
  const rows = table(columns.map((column) => TITLES[column] || column), numbers, found.rows, (row) => columns.map((column) => text(row[column], column)));
  const more = found.more > 0 ? [element("p", `and ${found.more.toLocaleString("en")} more names, in the export`)] : [];
  return [list(found.details, "details"), exportLinks("area", query), rows, ...more];
}
