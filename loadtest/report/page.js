(function () {
  "use strict";
  var root = document.documentElement;
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var plots = Array.prototype.slice.call(document.querySelectorAll(".plot"));
  var config = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false, showTips: false };

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

  Promise.all(plots.map(function (plot) { return Promise.resolve(plot).then(draw); })).then(
    function () { root.dataset.drawn = String(plots.length); },
    function (error) { root.dataset.failed = String(error); }
  );

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { recolour(ink()); });

  var opened = [];
  addEventListener("beforeprint", function () {
    opened = Array.prototype.slice.call(document.querySelectorAll("details.print:not([open])"));
    opened.forEach(function (details) { details.open = true; });
    recolour("#333");
    plots.forEach(function (plot) {
      if (plot.data) { Plotly.relayout(plot, { width: 640, height: 320, autosize: false }); }
    });
  });
  addEventListener("afterprint", function () {
    opened.forEach(function (details) { details.open = false; });
    recolour(ink());
    plots.forEach(function (plot) {
      if (plot.data) { Plotly.relayout(plot, { width: null, height: null, autosize: true }); }
    });
  });
})();
