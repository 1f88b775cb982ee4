"use strict";
/* Which rows the timeline has, in which order and how high: ranks that did the same folded, sorted, pinned, hidden. */
(function () {
  const { TimelineState, TOP, rangesText } = window.chakrascopeTimeline;
  const GROUP_HEIGHT = 18, LANE_HEIGHTS = [22, 36], LEAST_PANEL = 176, LEAST_HEIGHT = 220, GAP = 4;
  const ORDERS = { finish: "finish_ns", exposed: "exposed_comm_ns", waiting: "waiting_ns" };

  /* Read ranks written as 0-3,7; null if nothing readable is there. */
  function ranksOf(text) {
    const found = new Set();
    for (const part of text.split(/[\s,]+/).filter(Boolean)) {
      const pair = /^(\d{1,7})(?:-(\d{1,7}))?$/.exec(part);
      if (!pair) { return null; }
      for (let rank = Number(pair[1]); rank <= Number(pair[2] || pair[1]); rank += 1) { found.add(rank); }
    }
    return found.size ? found : null;
  }

  /* Write ranks as people do: 0-6, or 1, 3 ... 15 where they are as far apart. */
  function ranksText(ranks) {
    const step = ranks.length > 2 ? ranks[1] - ranks[0] : 1;
    if (step > 1 && ranks.every((rank, i) => rank === ranks[0] + i * step)) {
      return `${ranks[0]}, ${ranks[1]} … ${ranks[ranks.length - 1]}`;
    }
    return rangesText(ranks).replaceAll(",", ", ").replaceAll("-", "–");
  }

  class TimelineRows extends TimelineState {
    get foldsEqual() { return this.settings.same !== "apart"; }

    /* Return the groups of ranks of a source that are to be shown, in order. */
    groups(source) {
      const groups = new Map(), only = ranksOf(this.settings.ranks), hidden = ranksOf(this.settings.hidden) || new Set();
      for (const facts of source.ranks) {
        const key = this.foldsEqual ? facts.same_as : facts.rank;
        if (!groups.has(key)) { groups.set(key, { rank: key, ranks: [], facts, stood_in: false, apart: 0 }); }
        const group = groups.get(key);
        group.ranks.push(facts.rank);
        group.apart = Math.max(group.apart, facts.apart_ns);
        group.stood_in = group.stood_in || facts.stood_in;
      }
      const column = ORDERS[this.settings.order];
      const all = [...groups.values()].filter((group) => source.lanesOf.has(group.rank));
      const shown = all.filter((group) => !hidden.has(group.rank) && (!only || group.ranks.some((rank) => only.has(rank))));
      if (column) { shown.sort((a, b) => b.facts[column] - a.facts[column] || a.rank - b.rank); }
      source.groups = all;
      return shown;
    }

    /* Make the rows anew: pinned ranks first, which stay in sight; of runs beside each other rank by rank. */
    arrange() {
      const pinned = ranksOf(this.settings.pinned) || new Set(), listed = this.sources.map((source) => this.groups(source));
      const order = [...new Map(listed.flat().map((group) => [group.rank, group])).keys()], byRank = listed.map((groups) => new Map(groups.map((group) => [group.rank, group])));
      const first = order.filter((rank) => pinned.has(rank)), rest = order.filter((rank) => !pinned.has(rank));
      this.rows = [];
      for (const source of this.sources) { source.rowOf.fill(-1); }
      for (const rank of [...first, ...rest]) {
        byRank.forEach((groups, i) => {
          const group = groups.get(rank);
          if (group) { this.addRows(this.sources[i], group, pinned.has(rank)); }
        });
      }
      this.pinnedRows = this.rows.filter((row) => row.pinned).length;
      this.fitHeight();
      this.holder.dataset.rows = this.rows.length;
    }

    addRows(source, group, pinned) {
      const lanes = source.lanesOf.get(group.rank);
      lanes.forEach((lane, place) => {
        const facts = source.lanes[lane], before = place ? source.lanes[lanes[place - 1]] : null;
        const again = before && before.level === facts.level && before.label === facts.label && before.measured === facts.measured;
        for (const rank of group.ranks) {
          const own = source.lanesOf.get(rank) || [];
          if (own.length === lanes.length) { source.rowOf[own[place]] = this.rows.length; }
        }
        const isGroup = facts.level !== "slice";
        const label = !isGroup ? facts.label : again ? "" : facts.level;
        this.rows.push({ source, group, lane, place, label, isGroup, measured: facts.measured, pinned });
      });
    }

    /* Take as much of the screen as the rows need; the rest is the panel's below, which has the least it needs. */
    fitHeight() {
      const top = this.holder.getBoundingClientRect().top + window.scrollY;
      const most = Math.max(LEAST_HEIGHT, window.innerHeight - top - LEAST_PANEL);
      this.laneHeight = LANE_HEIGHTS[0];
      const fixed = this.rows.filter((row) => row.isGroup).length * GROUP_HEIGHT + TOP + 10, lanes = this.rows.filter((row) => !row.isGroup).length;
      if (lanes) { this.laneHeight = Math.max(LANE_HEIGHTS[0], Math.min(LANE_HEIGHTS[1], Math.floor((most - fixed - GAP * lanes) / lanes))); }
      let at = 0, before = null;
      for (const row of this.rows) {
        if (before && (before.group !== row.group || before.source !== row.source)) { at += GAP; }
        if (before && before.pinned && !row.pinned) { this.pinnedHeight = at; at = 0; }
        row.top = at;
        row.height = row.isGroup ? GROUP_HEIGHT : this.laneHeight;
        at += row.height;
        before = row;
      }
      if (!this.pinnedRows) { this.pinnedHeight = 0; } else if (this.pinnedRows === this.rows.length) { this.pinnedHeight = at; at = 0; }
      this.rowsHeight = at;
      this.holder.style.height = `${Math.min(most, TOP + this.pinnedHeight + this.rowsHeight + 10)}px`;
      this.scroll = Math.max(0, Math.min(this.scroll, this.mostScroll));
      const panel = document.getElementById("timeline-panel");
      if (panel) { panel.style.height = `${Math.max(LEAST_PANEL, window.innerHeight - top - this.holder.offsetHeight - 28)}px`; }
    }

    get mostScroll() { return Math.max(0, (this.rowsHeight || 0) + (this.pinnedHeight || 0) + TOP + 8 - this.height); }
    get scrollTop() { return TOP + (this.pinnedHeight || 0); }

    /* Return the top of a row on the canvas. */
    y(row) { return row.pinned ? TOP + row.top : this.scrollTop + row.top - this.scroll; }

    /* Return the row that shows a lane of a source, also if the lane is of a rank folded into another; else null. */
    rowOf(source, lane) { return lane >= 0 && source.rowOf[lane] >= 0 ? this.rows[source.rowOf[lane]] : null; }

    /* Return the place of the row at a height of the canvas: -1 above all of them, their number below. */
    rowAt(y) {
      if (y < TOP) { return -1; }
      const fixed = y < this.scrollTop, low = fixed ? 0 : this.pinnedRows, high = fixed ? this.pinnedRows : this.rows.length;
      const at = fixed ? y - TOP : y - this.scrollTop + this.scroll;
      for (let i = low; i < high; i++) { if (at < this.rows[i].top + this.rows[i].height) { return i; } }
      return high;
    }

    /* Return the lanes of a source whose rows are in sight, or nearly. */
    lanesInSight(source, margin) {
      const room = margin * this.laneHeight;
      return this.rows
        .filter((row) => row.source === source && (row.pinned || (this.y(row) > this.scrollTop - room && this.y(row) < this.height + room)))
        .map((row) => row.lane);
    }

    /* Return all ranks of a source that have a row, folded ones too. */
    ranksShown(source) { return [...new Set(this.rows.filter((row) => row.source === source).flatMap((row) => row.group.ranks))]; }

    /* Return one rank of each group that has a row: what the others did is the same. */
    representatives() { return [...new Set(this.rows.filter((row) => row.source === this.main).map((row) => row.group.rank))]; }

    /* Pin, hide, or show again the ranks that a row stands for. */
    toggle(name, rank) {
      const ranks = ranksOf(this.settings[name]) || new Set();
      if (!ranks.delete(rank)) { ranks.add(rank); }
      this.set(name, rangesText(ranks));
    }

    has(name, rank) { return (ranksOf(this.settings[name]) || new Set()).has(rank); }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineRows, ranksText, ranksOf, ORDERS });
})();
