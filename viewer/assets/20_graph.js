"use strict";
/* Keeps the graph in its frame, and its names readable: they keep their size on the screen whatever the zoom, and where
   there is no room for all of them the nodes that take least time lose theirs first. */
(function () {
  const PADDING = 30, LETTERS = 12, SMALLER = 11, ROOM = 128, LINE = 1.3, LETTER = 0.6, SQUARE = 12, watched = new WeakSet();
  const heard = new WeakSet();

  const graphOf = () => { const box = document.getElementById("graph"); return box && box._cyreg && box._cyreg.cy; };

  /* Where the name of a node stands, in pixels of the screen. */
  function place(node, room) {
    const most = room / (LETTERS * LETTER), lines = [];
    for (const line of String(node.data("label") || "").split("\n")) {
      let last = "";
      for (const word of line.split(" ")) {  // words are never cut
        if (last && last.length + 1 + word.length > most) { lines.push(last); last = word; } else { last = last ? `${last} ${word}` : word; }
      }
      lines.push(last);
    }
    const width = Math.max(...lines.map((line) => line.length)) * LETTERS * LETTER, height = lines.length * LETTERS * LINE;
    const { x, y } = node.renderedPosition(), half = node.renderedHeight() / 2 + 4;
    const top = node.hasClass("above") ? y - half - height : y + half;
    return { left: x - width / 2, right: x + width / 2, top, bottom: top + height };
  }

  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const rank = (node) => (node.hasClass("focus") ? Infinity : (node.hasClass("peer") ? 1e18 : Number(node.data("weight") || 0)));

  function readable(cy) {
    if (!cy || cy.destroyed()) { return; }
    const scale = 1 / Math.min(1, cy.zoom()), taken = [], nodes = cy.nodes().toArray();
    const squares = nodes.filter((node) => node.renderedWidth() >= SQUARE).map((node) => {
      const { x, y } = node.renderedPosition(), half = node.renderedWidth() / 2;
      return { node, left: x - half, right: x + half, top: y - half, bottom: y + half };
    });
    cy.batch(() => {
      cy.nodes().style({ "font-size": LETTERS * scale, "text-max-width": ROOM * scale });
      cy.edges().style("font-size", SMALLER * scale);
      for (const node of nodes.sort((a, b) => rank(b) - rank(a))) {
        const box = place(node, ROOM), first = node.hasClass("focus");
        const free = first || !(taken.some((other) => meet(box, other)) || squares.some((other) => other.node !== node && meet(box, other)));
        node.toggleClass("quiet", !free);
        if (free) { taken.push(box); }
      }
    });
    const box = document.getElementById("graph");
    if (box) { Object.assign(box.dataset, { named: taken.length, nodes: nodes.length }); }
  }

  /* Select a node on every page; a group of nodes stands for its longest one. */
  function select(node) {
    const query = new URLSearchParams(window.location.search), { rank, node: id } = node.data();
    if (!(id >= 0)) { return; }
    query.set("rank", rank);
    query.set("node", id);
    window.dash_clientside.set_props("url", { search: `?${query}` });
  }

  function expand(node) {
    const query = new URLSearchParams(window.location.search), known = (query.get("open") || "").split(",").filter(Boolean);
    const name = node.id();
    if (!/^\d+$/.test(name)) { return; }
    const open = known.includes(name) ? known.filter((each) => each !== name) : [...known, name];
    if (open.length) { query.set("open", open.join(",")); } else { query.delete("open"); }
    window.dash_clientside.set_props("url", { search: `?${query}` });
  }

  function hear(cy) {
    if (heard.has(cy)) { return; }
    heard.add(cy);
    let waiting = false;
    cy.on("zoom", () => {
      if (waiting) { return; }
      waiting = true;
      window.requestAnimationFrame(() => { waiting = false; readable(cy); });
    });
    cy.on("tap", "node", (event) => select(event.target));
    cy.on("cxttap", "node", (event) => expand(event.target));
  }

  function fit(holder) {
    const cy = graphOf();
    if (!holder.isConnected || !cy || cy.destroyed()) { return; }
    hear(cy);
    cy.resize();
    cy.fit(undefined, PADDING);
    readable(cy);
  }

  function watch() {
    const holder = document.querySelector(".graph-holder");
    if (!holder || watched.has(holder)) { return; }
    watched.add(holder);
    const observer = new ResizeObserver(() => { if (holder.isConnected) { fit(holder); } else { observer.disconnect(); } });
    observer.observe(holder);
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    fitGraph() {
      watch();
      const holder = document.querySelector(".graph-holder");
      if (holder) { window.requestAnimationFrame(() => fit(holder)); }
      return window.dash_clientside.no_update;
    },
  });
})();
