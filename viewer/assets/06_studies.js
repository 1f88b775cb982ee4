"use strict";
/* Several studies: each is an application of its own below /study/NAME/, so that going there loads a page. */
(function () {
  const address = (name) => `/study/${encodeURIComponent(name)}/`;

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    /* Show the same page of another study; what is selected there is its own affair. */
    openStudy(name, pathname) {
      const parts = (pathname || "/").split("/"), page = parts.pop();
      if (name && decodeURIComponent(parts.pop()) !== name) { window.location.assign(address(name) + page); }
      return window.dash_clientside.no_update;
    },
  });

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    StudyLink: (props) => window.React.createElement("a",
      { href: address(props.data.name), className: "text-link", title: props.value }, props.value),
  });
})();
