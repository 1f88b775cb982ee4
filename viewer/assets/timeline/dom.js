/* Functions that create DOM elements: HTML, SVG, lists, tables and links to exports. */
export function element(tag, text, className, more) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) { made.textContent = text; }
  if (className) { made.className = className; }
  return Object.assign(made, more || {});
}

export const button = (text, onclick, more) => element("button", text, "timeline-button", { type: "button", onclick, ...more });

const template = document.createElement("template");
template.innerHTML = "<svg></svg>";
const SVG = template.content.firstChild.namespaceURI;

export function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) { made.setAttribute(name, value); }
  if (text !== undefined) { made.textContent = text; }
  return made;
}

export function labelled(title, control) {
  const label = element("label", `${title} `, "timeline-control");
  label.append(control);
  return label;
}

/* Return (label, text) pairs as a description list. */
export function list(pairs, className) {
  const made = element("dl", null, className);
  for (const [label, text] of pairs) {
    const pair = element("div");
    pair.append(element("dt", label), element("dd", text));
    made.append(pair);
  }
  return made;
}

/* Return an HTML table. *columns* are the titles, *numbers* are the indices of numeric columns, and *cells* returns the texts
   or elements of a row. */
export function table(columns, numbers, rows, cells) {
  const made = element("table", null, "area-table"), head = element("tr");
  const kind = (i) => (numbers.includes(i) ? "number" : "");
  columns.forEach((title, i) => { head.append(element("th", title, kind(i), { scope: "col" })); });
  made.append(head);
  for (const row of rows) {
    const line = element("tr");
    cells(row).forEach((content, i) => {
      const cell = element("td", content instanceof Node ? null : content, kind(i));
      if (content instanceof Node) { cell.append(content); }
      line.append(cell);
    });
    made.append(line);
  }
  return made;
}

export function exportLinks(name, query) {
  const links = element("span", "Export ", "exports");
  ["csv", "parquet"].forEach((extension, i) => {
    const link = element("a", extension === "csv" ? "CSV" : "Parquet", "text-link");
    link.href = `./export/${name}.${extension}?${query}`; link.download = `${name}.${extension}`;
    links.append(i ? " · " : "", link);
  });
  return links;
}
