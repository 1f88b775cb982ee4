"use strict";
/* What stands below the timeline: the selected slice, what fills an area, the ranks, who came when, and notes. */
(function () {
  const { TimelineInput, ranksText, rangesText, ORDERS } = window.chakrascopeTimeline;
  const { durationText } = window.chakrascopeUnits;
  const TABS = { details: "Details", ranks: "Ranks", arrivals: "Who came when", notes: "Notes" };
  const MOST_GROUPS = 300, MOST_COLLECTIVES = 60, MOST_DOTS = 64;
  const TITLES = {
    operator: "Operator", name: "Name", row: "Row", kind: "Kind", slices: "Slices", total_ns: "Total", mean_ns: "Mean", longest_ns: "Longest",
    measured_ns: "Measured total",
  };

  const element = (tag, text, className, more) => {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) { made.textContent = text; }
    if (className) { made.className = className; }
    return Object.assign(made, more || {});
  };

  const holds = document.createElement("template");
  holds.innerHTML = "<svg></svg>";
  const SVG = holds.content.firstChild.namespaceURI;

  const drawn = (tag, attributes, text) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) { made.setAttribute(name, value); }
    if (text !== undefined) { made.textContent = text; }
    return made;
  };

  function list(pairs) {
    const made = element("dl", null, "details");
    for (const [label, text] of pairs) {
      const pair = element("div");
      pair.append(element("dt", label), element("dd", text));
      made.append(pair);
    }
    return made;
  }

  function tableOf(columns, titles, rows, cells) {
    const table = element("table", null, "area-table"), head = element("tr");
    columns.forEach((column, i) => { head.append(element("th", titles[i], column.number ? "number" : "", { scope: "col" })); });
    table.append(head);
    for (const row of rows) {
      const line = element("tr");
      cells(row).forEach((cell, i) => {
        const made = element("td", cell instanceof Node ? null : cell, columns[i].number ? "number" : "");
        if (cell instanceof Node) { made.append(cell); }
        line.append(made);
      });
      table.append(line);
    }
    return table;
  }

  function exportLinks(name, query) {
    const links = element("span", "Export ", "exports");
    ["csv", "parquet"].forEach((extension, i) => {
      const link = element("a", extension === "csv" ? "CSV" : "Parquet", "text-link");
      link.href = `./export/${name}.${extension}?${query}`; link.download = `${name}.${extension}`;
      links.append(i ? " · " : "", link);
    });
    return links;
  }

  class TimelinePanel extends TimelineInput {
    constructor(holder) {
      super(holder);
      const tabs = document.getElementById("timeline-tabs");
      this.tabs = {};
      if (!tabs) { return; }
      tabs.setAttribute("role", "tablist");
      tabs.replaceChildren(...Object.entries(TABS).map(([name, title]) => {
        this.tabs[name] = element("button", title, "timeline-tab", { type: "button", onclick: () => this.openTab(name) });
        this.tabs[name].setAttribute("role", "tab");
        this.tabs[name].setAttribute("aria-controls", `timeline-${name}`);
        return this.tabs[name];
      }));
      this.openTab("ranks");
    }

    openTab(name) {
      this.tab = name;
      for (const [each, button] of Object.entries(this.tabs)) {
        const place = document.getElementById(`timeline-${each}`);
        button.setAttribute("aria-selected", String(each === name));
        if (place) { place.hidden = each !== name; }
      }
      if (name === "arrivals" && this.isLoaded) { this.showArrivals(); }
    }

    /* Follow what changed: runs, rows, or their order. */
    shown() {
      this.showRanks();
      this.showTools();
      if (this.tab === "arrivals") { this.showArrivals(); }
    }

    showDetails(details) {
      const out = document.getElementById("timeline-details");
      if (!out) { return; }
      out.replaceChildren(list(details));
      delete out.dataset.area;
      // Whoever writes notes goes on, on what is selected now.
      this.openTab(this.tab === "notes" ? "notes" : "details");
    }

    async showBeside(source, rank, node) {
      const found = await this.details(source, rank, node, true);
      if (found) { this.showDetails([["Run", "the one beside"], ...found.details]); }
    }

    /* Sum up what lies in the marked area, of each run that has rows in it. */
    async measure() {
      const out = document.getElementById("timeline-details"), area = this.area, parts = [];
      for (const source of this.sources) {
        const lanes = this.areaRows().filter((row) => row.source === source).map((row) => row.lane);
        if (!lanes.length) { continue; }
        const query = this.query({ run: source.run, t0: Math.round(area.t0 - source.shift), t1: Math.round(area.t1 - source.shift), lanes: rangesText(lanes) });
        const reply = await fetch(`./api/area?${query}`);
        if (reply.ok) { parts.push(...this.areaParts(await reply.json(), query, source)); }
      }
      if (!out || area !== this.area) { return; }
      out.replaceChildren(...parts);
      out.dataset.area = "yes";
      this.openTab("details");
    }

    /* Return what fills an area: totals, and its slices by name as a table that can be had whole as a file. */
    areaParts(found, query, source) {
      const links = exportLinks("area", query);
      const shown = found.columns.filter((column) => column !== "measured_ns" || found.rows.some((row) => row.measured_ns > 0));
      const isTime = (column) => column.endsWith("_ns"), number = (column) => isTime(column) || column === "slices";
      const table = tableOf(shown.map((column) => ({ number: number(column) })), shown.map((column) => TITLES[column] || column), found.rows,
        (row) => shown.map((column) => (isTime(column) ? durationText(Math.round(row[column])) : number(column) ? row[column].toLocaleString("en") : row[column])));
      const more = found.more > 0 ? [element("p", `and ${found.more.toLocaleString("en")} more names, in the export`)] : [];
      const title = this.sources.length > 1 ? [element("p", source === this.main ? "This run" : this.besideName() === "beside" ? "Beside" : `Beside, in ${this.besideName()}`, "side-title")] : [];
      return [...title, list(found.details), links, table, ...more];
    }

    /* List the ranks: those that did the same as one, with what they are sorted by; pin, hide, show again. */
    showRanks() {
      const out = document.getElementById("timeline-ranks"), source = this.main;
      if (!out || !source) { return; }
      const kept = document.activeElement && out.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      const column = ORDERS[this.settings.order], groups = [...source.groups];
      if (column) { groups.sort((a, b) => b.facts[column] - a.facts[column]); }
      const button = (name, rank, words) => {
        const on = this.has(name, rank), made = element("button", words[on ? 1 : 0], "timeline-button", { type: "button", onclick: () => this.toggle(name, rank) });
        made.setAttribute("aria-pressed", String(on));
        made.setAttribute("aria-label", `${words[on ? 1 : 0]} rank ${rank}`);
        made.dataset.key = `${name}:${rank}`;
        return made;
      };
      const table = tableOf(
        [{}, { number: true }, { number: true }, { number: true }, {}], ["Ranks", "Finish", "Exposed communication", "Waiting for others", "Pin or hide"], groups.slice(0, MOST_GROUPS),
        ({ rank, ranks, facts, apart }) => {
          const what = element("span");
          what.append(button("pinned", rank, ["Pin", "Unpin"]), " ", button("hidden", rank, ["Hide", "Show"]));
          const same = ranks.length > 1 ? `: ${ranks.length} did the same${apart ? `, within ${durationText(apart)}` : ""}` : "";
          return [`${ranksText(ranks)}${same}`, durationText(facts.finish_ns), durationText(facts.exposed_comm_ns), durationText(facts.waiting_ns), what];
        });
      const more = groups.length > MOST_GROUPS ? [element("p", `and ${groups.length - MOST_GROUPS} more; choose which with "Ranks"`)] : [];
      out.replaceChildren(exportLinks("standings", new URLSearchParams({ run: this.run })), table, ...more);
      const again = kept && out.querySelector(`[data-key="${kept}"]`);
      if (again) { again.focus(); }
    }

    /* Draw who came when to each collective, those that ranks came to furthest apart first. */
    async showArrivals() {
      const out = document.getElementById("timeline-arrivals"), run = this.run;
      if (!out) { return; }
      if (this.arrivalsOf !== run) {
        const reply = await fetch(`./api/arrivals?${this.query({})}`);
        if (!reply.ok || run !== this.run) { return; }
        this.arrivals = await reply.json(); this.arrivalsOf = run;
      }
      const calls = new Map(), table = this.arrivals, only = new Set(this.ranksShown(this.main));
      table.collective.forEach((collective, i) => {
        if (!only.has(table.rank[i])) { return; }
        if (!calls.has(collective)) { calls.set(collective, []); }
        calls.get(collective).push(i);
      });
      const late = (places) => Math.max(...places.map((i) => table.late_ns[i]));
      const rows = [...calls.values()].sort((a, b) => late(b) - late(a)).slice(0, MOST_COLLECTIVES);
      if (!rows.length) { out.replaceChildren(element("p", "No collective of several ranks is shown.")); return; }
      const note = `Each dot is a rank, placed by how much later than the first it came; the last one is named.`
        + (calls.size > rows.length ? ` The ${rows.length} of ${calls.size} collectives that ranks came to furthest apart.` : "");
      out.replaceChildren(exportLinks("arrivals", new URLSearchParams({ run: this.run })), element("p", note, "figure-note"), this.arrivalPicture(rows, Math.max(1, late(rows[0]))));
    }

    arrivalPicture(rows, most) {
      const table = this.arrivals, tall = 20, left = 250, right = 140, wide = Math.max(400, (document.getElementById("timeline-panel") || this.holder).clientWidth - left - right - 24);
      const picture = drawn("svg", { width: left + wide + right, height: rows.length * tall + 22, class: "arrivals", role: "img", "aria-label": "How much later than the first each rank came to each collective" });
      for (const [part, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
        picture.append(drawn("text", { x: left + part * wide, y: 11, "text-anchor": anchor, class: "soft" }, part ? `+${durationText(Math.round(part * most))}` : "first"));
      }
      rows.forEach((places, row) => {
        const y = 22 + row * tall + tall / 2, ordered = [...places].sort((a, b) => table.late_ns[a] - table.late_ns[b] || table.rank[b] - table.rank[a]), last = ordered[ordered.length - 1];
        const every = Math.ceil(ordered.length / MOST_DOTS), x = (i) => left + (table.late_ns[i] / most) * wide;
        const name = `${table.operation[last]} ${table.collective[last]}${table.module[last] ? ` · ${table.module[last]}` : ""}`;
        picture.append(drawn("text", { x: 0, y: y + 4 }, name.length > 38 ? `${name.slice(0, 37)}…` : name), drawn("line", { x1: left, x2: x(last), y1: y, y2: y, class: "reach" }));
        ordered.forEach((i, place) => {
          if (place % every && i !== last) { return; }
          const dot = drawn("circle", { cx: x(i), cy: y, r: i === last ? 5 : 4, class: i === last ? "last" : "came", "data-rank": table.rank[i] });
          dot.append(drawn("title", {}, `rank ${table.rank[i]} came ${table.late_ns[i] ? `${durationText(table.late_ns[i])} after the first` : "first"}, at ${durationText(table.start_ns[i])}`));
          dot.addEventListener("click", () => this.choose(table.rank[i], table.node_id[i]));
          picture.append(dot);
        });
        picture.append(drawn("text", { x: x(last) + 9, y: y + 4, class: "soft" }, table.late_ns[last] ? `rank ${table.rank[last]} +${durationText(table.late_ns[last])}` : "all together"));
      });
      return picture;
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelinePanel, element });
})();
