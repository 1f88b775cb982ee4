"use strict";
/* Fits the graph to its pane and keeps names readable: names and lines have the same size at any zoom, and no name covers a
   node or another name. If there is too little room for all names, the names of the shortest nodes are hidden first. */
(function () {
  const PADDING = 30, LETTERS = 12, SMALLER = 11, ROOM = 128, LINE = 1.3, LETTER = 0.6, GAP = 3, EDGE = 1.6, PATH = 4, MAX_SCALE = 3, MAX_ZOOM = 1.4, watched = new WeakSet();
  const heard = new WeakSet();

  const graphOf = () => { const box = document.getElementById("graph"); return box && box._cyreg && box._cyreg.cy; };

  /* Return the bounding box of a node's name above or below the node, in screen pixels. */
  function place(node, room, isAbove) {
    const most = room / (LETTERS * LETTER), lines = [];
    for (const line of String(node.data("label") || "").split("\n")) {
      let last = "";
      for (const word of line.split(" ")) {  // lines break only between words
        if (last && last.length + 1 + word.length > most) { lines.push(last); last = word; } else { last = last ? `${last} ${word}` : word; }
      }
      lines.push(last);
    }
    const width = Math.max(...lines.map((line) => line.length)) * LETTERS * LETTER, height = lines.length * LETTERS * LINE;
    const { x, y } = node.renderedPosition(), half = node.renderedHeight() / 2 + 4;
    const top = isAbove ? y - half - height : y + half;
    return { left: x - width / 2, right: x + width / 2, top, bottom: top + height };
  }

  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const rank = (node) => (node.hasClass("focus") ? Infinity : (node.hasClass("peer") ? 1e18 : Number(node.data("weight") || 0)));

  function readable(cy) {
    if (!cy || cy.destroyed()) { return; }
    const scale = 1 / cy.zoom(), wide = Math.min(MAX_SCALE, scale), taken = [], nodes = cy.nodes().not(".bend").toArray();
    const squares = nodes.map((node) => {
      const { x, y } = node.renderedPosition(), half = node.renderedOuterWidth() / 2 + GAP;
      return { node, left: x - half, right: x + half, top: y - half, bottom: y + half };
    });
    const isFree = (node, box) => !taken.some((other) => meet(box, other)) && !squares.some((other) => other.node !== node && meet(box, other));
    cy.batch(() => {
      cy.nodes().style({ "font-size": LETTERS * scale, "text-max-width": ROOM * scale });
      cy.edges().style({ "font-size": SMALLER * scale, width: EDGE * wide });
      cy.edges(".path").style({ width: PATH * wide });
      for (const node of nodes.sort((a, b) => rank(b) - rank(a))) {
        const own = node.hasClass("above"), side = [own, !own].find((isAbove) => isFree(node, place(node, ROOM, isAbove)));
        const isNamed = side !== undefined || node.hasClass("focus"), isAbove = side === undefined ? own : side;
        node.toggleClass("above", isAbove);
        node.toggleClass("quiet", !isNamed);
        if (isNamed) { taken.push(place(node, ROOM, isAbove)); }
      }
    });
    const box = document.getElementById("graph");
    if (box) { Object.assign(box.dataset, { named: taken.length, nodes: nodes.length }); }
  }

  /* Select a node on every page; a click on a group selects the longest node of the group. */
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

  /* Stretch the drawing to the aspect ratio of its pane, so that names have more room. */
  function stretch(cy) {
    const places = cy.nodes().map((node) => node.data("place")), extent = (axis) => Math.max(...places.map((at) => at[axis])) - Math.min(...places.map((at) => at[axis]));
    const shape = (extent("y") / extent("x")) * (cy.width() / cy.height());
    if (!(shape > 0) || shape === Infinity) { return; }
    cy.batch(() => cy.nodes().forEach((node) => {
      const { x, y } = node.data("place");
      node.position({ x: x * Math.max(1, shape), y: y * Math.max(1, 1 / shape) });
    }));
  }

  function fit(holder) {
    const cy = graphOf();
    if (!holder.isConnected || !cy || cy.destroyed()) { return; }
    hear(cy);
    cy.resize();
    stretch(cy);
    cy.fit(undefined, PADDING);
    if (cy.zoom() > MAX_ZOOM) { cy.zoom(MAX_ZOOM); cy.center(); }
    readable(cy);
  }

  function watch() {
    const holder = document.querySelector(".graph-holder");
    if (!holder || watched.has(holder)) { return; }
    watched.add(holder);
    const observer = new ResizeObserver(() => { if (holder.isConnected) { fit(holder); } else { observer.disconnect(); } });
    observer.observe(holder);
  }

  window.chakrascopeCallbacks({
    fitGraph() {
      watch();
      const holder = document.querySelector(".graph-holder");
      if (holder) { window.requestAnimationFrame(() => fit(holder)); }
      return window.dash_clientside.no_update;
    },
  });
})();
