"use strict";
/* Cells of tables: the link to a run, and formats; a table column names one as {"function": "inTime(params.value)"}. */
(function () {
  const { bandwidthText, bytesText, changeText, durationText, instantText, shareText } = window.chakrascopeUnits;
  const missing = (value) => value === null || value === undefined;

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    RunLink: (props) => window.React.createElement(window.dash_core_components.Link,
      { href: `./?run=${encodeURIComponent(props.data.id)}`, className: "text-link", title: props.value }, props.value),
  });

  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
    inTime: (ns) => (missing(ns) ? "" : durationText(ns)),
    inSteps: (ns, steps) => (missing(ns) ? "" : durationText(ns) + (steps > 1 ? ` (${steps} steps)` : "")),
    inTimeIfAny: (ns) => (missing(ns) || ns < 0 ? "" : durationText(ns)),
    asInstant: (ns, resolution) => (missing(ns) ? "" : instantText(ns, resolution)),
    inPercent: (share) => (missing(share) ? "" : shareText(share)),
    inSignedPercent: (share) => (missing(share) ? "" : changeText(share)),
    inSignedTime: (ns) => (missing(ns) ? "" : `${ns > 0 ? "+" : ""}${durationText(ns)}`),
    inThousands: (count) => (missing(count) ? "" : count.toLocaleString("en-US")),
    inFourDigits: (value) => (missing(value) ? "" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 })),
    inRate: (bytesPerNs) => (missing(bytesPerNs) ? "" : bandwidthText(bytesPerNs)),
    toTheMinute: (time) => (missing(time) ? "" : time.slice(0, 16)),
    inBytes: (bytes) => (missing(bytes) || bytes < 0 ? "" : bytesText(bytes)),
  });
})();
