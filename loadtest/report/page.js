(function () {
  "use strict";
  var root = document.documentElement;
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var plots = all(document, ".plot");
  var config = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false, showTips: false };

  function all(node, selector) {
    return Array.prototype.slice.call(node.querySelectorAll(selector));
  }

  function ink() {
    return getComputedStyle(root).getPropertyValue("--ink-2").trim();
  }

  function recolour(colour) {
    plots.forEach(function (plot) {
      if (plot.data) { Plotly.relayout(plot, { "font.color": colour }); }
    });
  }

  function draw(plot) {
    var figure = figures[plot.dataset.figure];
    var layout = figure.layout;
    layout.font.color = ink();
    if (plot.clientWidth < 480) {
      layout.font.size = 12;
      layout.margin.r = 6;
    }
    return Plotly.newPlot(plot, figure.data, layout, config);
  }

  // One chart at a time, from the top, so that the page can be read while the rest is drawn. A chart in a folded part
  // has no width to be drawn at: it is drawn once the part opens.
  var drawing = false;
  function next() {
    if (drawing) { return; }
    var waiting = plots.filter(function (plot) { return !plot.data && !plot.closest("details:not([open])"); });
    if (waiting.length === 0) {
      root.dataset.drawn = String(plots.filter(function (plot) { return plot.data; }).length);
      return;
    }
    drawing = true;
    Promise.resolve(waiting[0]).then(draw).then(
      function () { setTimeout(function () { drawing = false; next(); }, 0); },
      function (error) { root.dataset.failed = String(error); }
    );
  }

  document.addEventListener("toggle", function (event) {
    if (!event.target.open) { return; }
    all(event.target, ".plot").forEach(function (plot) {
      if (plot.data && !plot.closest("details:not([open])")) { Plotly.Plots.resize(plot); }
    });
    next();
  }, true);

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { recolour(ink()); });

  var opened = [];
  addEventListener("beforeprint", function () {
    opened = all(document, "details.print:not([open])");
    opened.forEach(function (details) { details.open = true; });
    plots.filter(function (plot) { return !plot.data; }).forEach(draw);
    recolour("#333");
    plots.forEach(function (plot) {
      Plotly.relayout(plot, { width: 640, height: plot.closest(".tall") ? 460 : 320, autosize: false });
    });
  });
  addEventListener("afterprint", function () {
    opened.forEach(function (details) { details.open = false; });
    recolour(ink());
    plots.forEach(function (plot) {
      if (plot.data) { Plotly.relayout(plot, { width: null, height: null, autosize: true }); }
    });
  });

  // A link into a folded part opens it, and goes there once it is open.
  function goTo(hash) {
    var target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1))), opens = false;
    for (var node = target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS" && !node.open) { opens = node.open = true; }
    }
    if (opens) { target.scrollIntoView(); }
  }
  addEventListener("hashchange", function () { goTo(location.hash); });
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) { goTo(link.hash); }  // asked for again, after it was folded
  });

  var UNITS = { ms: 0.001, s: 1, min: 60, h: 3600 };

  function text(cell) {
    return cell.textContent.replace(/\u00a0/g, " ").replace(/\u2011/g, "-").trim();
  }

  // Returns what a cell is sorted by: a number where it begins with one, times in seconds; nothing where it is empty.
  function key(cell) {
    var shown = text(cell);
    if (shown === "" || shown === "\u2013") { return null; }
    if (/^[+\u2212-]?\u221e/.test(shown)) { return shown.charAt(0) === "\u2212" ? -Infinity : Infinity; }
    var total = 0, found = false, rest = shown.replace(/\u2212/g, "-");
    var part = /^([+-]?[\d,]+(?:\.\d+)?) ?(ms|s|min|h)?(?![a-z])/;
    for (var match = part.exec(rest); match; match = found && match[2] ? part.exec(rest) : null) {
      total += Number(match[1].replace(/,/g, "")) * (match[2] ? UNITS[match[2]] : 1);
      found = true;
      rest = rest.slice(match[0].length).trim();
      if (!match[2]) { break; }
    }
    return found ? total : shown.toLowerCase();
  }

  function compare(a, b) {
    if (a === null || b === null) { return a === b ? 0 : a === null ? 2 : -2; }
    if (typeof a === "number" && typeof b === "number") { return a < b ? -1 : a > b ? 1 : 0; }
    if (typeof a !== typeof b) { return typeof a === "number" ? -1 : 1; }
    return a.localeCompare(b, "en", { numeric: true });
  }

  function sortable(table) {
    var body = table.tBodies[0];
    var heads = all(table, "thead th");
    var original = Array.prototype.slice.call(body.rows);
    if (original.length < 2) { return; }
    heads.forEach(function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      while (head.firstChild) { button.appendChild(head.firstChild); }
      head.appendChild(button);
      button.addEventListener("click", function () {
        var before = head.getAttribute("aria-sort");
        var order = before === "ascending" ? "descending" : before === "descending" ? "" : "ascending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        var rows = original.map(function (row, place) { return { row: row, key: key(row.cells[column]), place: place }; });
        if (order) {
          head.setAttribute("aria-sort", order);
          rows.sort(function (a, b) {
            var found = compare(a.key, b.key);
            if (Math.abs(found) === 2) { return found; }
            return (order === "ascending" ? found : -found) || a.place - b.place;
          });
        }
        rows.forEach(function (item) { body.appendChild(item.row); });
      });
    });
  }

  // A spreadsheet must not take foreign text for a formula.
  function quoted(shown) {
    if (/^[=@\t\r]/.test(shown) || (/^[+-]/.test(shown) && !/^[+-][\d.,]+( ?[%\u00d7a-z/]+)?( \[[-+\u2212\u2013\u221e\d., ]+\])?$/i.test(shown))) {
      shown = "'" + shown;
    }
    return '"' + shown.replace(/"/g, '""') + '"';
  }

  function csv(table) {
    var rows = all(table, "tr").map(function (row) {
      return Array.prototype.slice.call(row.cells).map(function (cell) { return quoted(text(cell)); }).join(",");
    });
    return rows.join("\r\n") + "\r\n";
  }

  function copied(value) {
    if (navigator.clipboard && window.isSecureContext) { return navigator.clipboard.writeText(value); }
    return Promise.reject(new Error("no clipboard"));
  }

  function copiedByHand(value) {
    var area = document.createElement("textarea");
    area.value = value;
    area.setAttribute("aria-label", "CSV");
    document.body.appendChild(area);
    area.select();
    var done = document.execCommand("copy");
    area.remove();
    return done;
  }

  function copyable(table) {
    var button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy as CSV";
    button.setAttribute("aria-label", "Copy as CSV: " + text(table.caption));
    button.addEventListener("click", function () {
      var value = csv(table);
      copied(value).catch(function () {
        if (!copiedByHand(value)) { throw new Error("not copied"); }
      }).then(
        function () { button.textContent = "Copied"; },
        function () { button.textContent = "The browser does not let this page copy"; }
      );
      setTimeout(function () { button.textContent = "Copy as CSV"; }, 2500);
    });
    table.parentElement.insertAdjacentElement("afterend", button);
  }

  // A table wider than its frame says so: where scroll bars are hidden nothing else tells of the columns beyond.
  function hinted(table) {
    var frame = table.parentElement, hint = document.createElement("p");
    hint.className = "more";
    hint.textContent = "Scroll sideways for more columns \u2192";
    hint.hidden = true;
    frame.insertAdjacentElement("beforebegin", hint);
    var watch = new ResizeObserver(function () { hint.hidden = frame.scrollWidth <= frame.clientWidth; });
    watch.observe(frame);
    watch.observe(table);
  }

  all(document, ".scroll table").forEach(hinted);
  all(document, ".scroll table").forEach(function (table) {
    if (table.tHead) { sortable(table); }
    if (table.caption) { copyable(table); }
  });
  next();
  goTo(location.hash);
})();
