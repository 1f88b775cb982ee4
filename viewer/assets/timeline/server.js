/* Requests to the server for the lanes of a run and the slices in a window. */
/* Return the JSON response of the API route *path*, or null if the server answers with an error. */
export async function ask(path, query) {
  const reply = await fetch(`./api/${path}?${query}`);
  return reply.ok ? reply.json() : null;
}

/* Decode the binary output of SliceBatch.encode in viewer/timeline/_slices.py. */
function decode(buffer) {
  const count = new DataView(buffer).getUint32(0, true);
  let at = 8;
  const take = (Type) => { const column = new Type(buffer, at, count); at += column.byteLength; return column; };
  const columns = {
    count, edition: new DataView(buffer).getUint32(4, true), start: take(Float64Array), end: take(Float64Array), node: take(Float64Array),
    lane: take(Int32Array), merged: take(Int32Array), name: take(Int32Array), colour: take(Uint8Array), found: take(Uint8Array),
  };
  return Object.assign(columns, { names: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, at))) });
}

export async function askSlices(query) {
  const reply = await fetch(`./api/slices?${query}`);
  return reply.ok ? decode(await reply.arrayBuffer()) : null;
}

/* Return the lanes, critical path and colours of a run as a source of slices; throws an Error with a readable message. */
export async function askSource(run, query) {
  const reply = await fetch(`./api/lanes?${query}`);
  if (!reply.ok) { throw new Error(`The timeline of ${run} cannot be read: the server answered ${reply.status}. Reload the page, or choose another run.`); }
  const data = await reply.json(), lanesOf = new Map(), lanes = [];
  // Lane numbers of a large run leave gaps between ranks.
  data.lanes.forEach((lane) => {
    lanes[lane.lane] = lane;
    if (!lanesOf.has(lane.rank)) { lanesOf.set(lane.rank, []); }
    lanesOf.get(lane.rank).push(lane.lane);
  });
  return { run, name: "this run", title: "This run", counterpart: null, ...data, lanes, makespan: data.makespan_ns, lanesOf, batch: null, shift: 0, rowOf: new Int32Array(lanes.length).fill(-1) };
}
