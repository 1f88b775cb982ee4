"use strict";
/* Formats quantities with the same rules and operations as support/_units.py; a test compares both implementations. Other
   files add clientside callbacks by chakrascopeCallbacks. */
(function () {
  const DURATIONS = ["ns", "µs", "ms", "s"], BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];
  const OPERATIONS = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"], RATES = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"], MAX_DECIMALS = 9;

  const rounded = (size, scale, decimals) => Math.floor((size * 10 ** decimals) / scale + 0.5);
  const sign = (value) => (value < 0 ? "-" : "");

  function digits(number, decimals) {
    const text = String(number).padStart(decimals + 1, "0"), point = text.length - decimals;
    const whole = text.slice(0, point).replace(/\B(?=(\d{3})+$)/g, ",");
    return decimals ? `${whole}.${text.slice(point)}` : whole;
  }

  function inUnits(value, step, units) {
    const size = Math.abs(value), last = units[units.length - 1];
    if (size === Math.floor(size) && size < step) { return `${sign(value)}${digits(size, 0)} ${units[0]}`; }
    let scale = 1;
    for (const unit of units) {
      for (let decimals = 2; decimals >= 0; decimals -= 1) {
        let number = rounded(size, scale, decimals);
        if (number < 1000 || (decimals === 0 && (number < step || unit === last))) {
          while (unit === units[0] && number < 100 && decimals < MAX_DECIMALS) {
            decimals += 1;
            number = rounded(size, scale, decimals);
          }
          return `${sign(value)}${digits(number, decimals)} ${unit}`;
        }
      }
      scale *= step;
    }
    return "";
  }

  function instantText(ns, resolution = 1000) {
    const decimals = Math.min(Math.max(0, 6 - Math.floor(Math.log10(resolution))), MAX_DECIMALS);
    return `${sign(ns)}${digits(rounded(Math.abs(ns), 1e6, decimals), decimals)} ms`;
  }

  function shareText(share) {
    const perMille = rounded(share, 1, 3);
    if (perMille === 0 && share > 0) { return "<0.1 %"; }
    return perMille === 1000 && share < 1 ? ">99.9 %" : `${digits(perMille, 1)} %`;
  }

  function changeText(relative) {
    const decimals = rounded(Math.abs(relative), 1, 4) < 100 ? 2 : 1;
    const number = rounded(Math.abs(relative), 1, decimals + 2);
    return `${number === 0 ? "" : relative > 0 ? "+" : "-"}${digits(number, decimals)} %`;
  }

  const dash = window.dash_clientside = window.dash_clientside || {};
  dash.chakrascope = dash.chakrascope || {};
  window.chakrascopeCallbacks = (callbacks) => { Object.assign(dash.chakrascope, callbacks); };
  window.chakrascopeUnits = {
    durationText: (ns) => inUnits(ns, 1000, DURATIONS),
    bytesText: (bytes) => inUnits(bytes, 1024, BYTES),
    bandwidthText: (bytesPerNs) => inUnits(bytesPerNs * 1e9, 1000, RATES),
    operationsText: (count) => inUnits(count, 1000, OPERATIONS),
    instantText, shareText, changeText,
  };
})();
