"use strict";
/* Cells of tables: the link to a run, and formats; a table column names one as {"function": "inMilliseconds(params.value)"}. */
(function () {
  const { bytesText, changeText, instantText, shareText } = window.chakrascopeUnits;
  const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const inMs = (ns) => instantText(ns).replace(" ms", "");  // the unit is in the column's heading
  const missing = (value) => value === null || value === undefined;

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    RunLink: (props) => window.React.createElement(window.dash_core_components.Link,
      { href: `./?run=${encodeURIComponent(props.data.id)}`, className: "text-link", title: props.value }, props.value),
  });

  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
    inMilliseconds: (ns) => (missing(ns) ? "" : inMs(ns)),
    inMillisecondsIfAny: (ns) => (missing(ns) || ns < 0 ? "" : inMs(ns)),
    inPercent: (share) => (missing(share) ? "" : shareText(share)),
    inSignedPercent: (share) => (missing(share) ? "" : changeText(share)),
    inSignedMilliseconds: (ns) => (missing(ns) ? "" : `${ns > 0 ? "+" : ""}${inMs(ns)}`),
    inThousands: (count) => (missing(count) ? "" : count.toLocaleString("en-US")),
    inFourDigits: (value) => (missing(value) ? "" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 })),
    inRate: (bytesPerNs) => (missing(bytesPerNs) ? "" : fixed(bytesPerNs, bytesPerNs < 10 ? 3 : 1)),
    toTheMinute: (time) => (missing(time) ? "" : time.slice(0, 16)),
    inBytes: (bytes) => (missing(bytes) || bytes < 0 ? "" : bytesText(bytes)),
  });
})();
