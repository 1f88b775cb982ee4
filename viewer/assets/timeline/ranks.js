/* Ranks as text, such as 0-3,7: in the address, in requests, and for people. */

/* Write whole numbers as ranges, such as 0-3,7. */
export function rangesText(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && number <= last[1] + 1) { last[1] = number; } else { parts.push([number, number]); }
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

/* Read ranks written as 0-3,7; null if the text has none, or something else. */
export function ranksOf(text) {
  const ranks = new Set();
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const pair = /^(\d{1,7})(?:-(\d{1,7}))?$/.exec(part);
    if (!pair) { return null; }
    for (let rank = Number(pair[1]); rank <= Number(pair[2] || pair[1]); rank += 1) { ranks.add(rank); }
  }
  return ranks.size ? ranks : null;
}

/* Write ranks for people: 0-6, or 1, 3 ... 15 where they are evenly spaced. */
export function ranksText(ranks) {
  const step = ranks.length > 2 ? ranks[1] - ranks[0] : 1;
  if (step > 1 && ranks.every((rank, i) => rank === ranks[0] + i * step)) {
    return `${ranks[0]}, ${ranks[1]} … ${ranks[ranks.length - 1]}`;
  }
  return rangesText(ranks).replaceAll(",", ", ").replaceAll("-", "–");
}
