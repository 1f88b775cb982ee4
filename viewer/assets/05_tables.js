"use strict";
/* Cells of tables: the link to a run, and formats; a table column names one as {"function": "inMilliseconds(params.value)"}. */
(function () {
  const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const missing = (value) => value === null || value === undefined;

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    RunLink: (props) => window.React.createElement(window.dash_core_components.Link,
      { href: `./?run=${encodeURIComponent(props.data.id)}`, className: "text-link", title: props.value }, props.value),
  });

  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
    inMilliseconds: (ns) => (missing(ns) ? "" : fixed(ns / 1e6, 3)),
    inMillisecondsIfAny: (ns) => (missing(ns) || ns < 0 ? "" : fixed(ns / 1e6, 3)),
    inPercent: (share) => (missing(share) ? "" : `${fixed(100 * share, 1)} %`),
    inSignedPercent: (share) => (missing(share) ? "" : `${share > 0 ? "+" : ""}${fixed(100 * share, 1)} %`),
    inSignedFinePercent: (share) => (missing(share) ? "" : `${share > 0 ? "+" : ""}${fixed(100 * share, 2)} %`),
    inSignedMilliseconds: (ns) => (missing(ns) ? "" : `${ns > 0 ? "+" : ""}${fixed(ns / 1e6, 3)}`),
    inThousands: (count) => (missing(count) ? "" : count.toLocaleString("en-US")),
    inFourDigits: (value) => (missing(value) ? "" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 })),
    inRate: (bytesPerNs) => (missing(bytesPerNs) ? "" : fixed(bytesPerNs, bytesPerNs < 10 ? 3 : 1)),
    toTheMinute: (time) => (missing(time) ? "" : time.slice(0, 16)),
    inBytes: (bytes) => {
      if (missing(bytes) || bytes < 0) { return ""; }
      const [scale, unit] = BYTES.find(([size]) => bytes >= size) || [1, "B"];
      return `${fixed(bytes / scale, scale === 1 ? 0 : 2)} ${unit}`;
    },
  });
})();
