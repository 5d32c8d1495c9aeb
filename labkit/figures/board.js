// Figures that are redrawn in place. plotly.js is asked for once a page, from the kernel, so that no network is needed
// and no figure carries a copy of its own.
const CONFIG = {responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]};

function plotly(model) {
  if (window.labkitPlotly) return Promise.resolve(window.labkitPlotly);
  return new Promise((resolve, reject) => {
    const take = (content, buffers) => {
      if (content.kind !== "plotly" || !buffers || !buffers.length) return;
      model.off("msg:custom", take);
      if (window.labkitPlotly) return resolve(window.labkitPlotly);
      // Without define, module and exports in sight the library puts itself on window.
      const parts = ["(function () { var define, module, exports;\n", buffers[0], "\n}).call(window);"];
      const script = document.createElement("script");
      script.src = URL.createObjectURL(new Blob(parts, {type: "text/javascript"}));
      script.onload = () => { window.labkitPlotly = window.Plotly; resolve(window.Plotly); };
      script.onerror = () => reject(new Error("plotly.js could not be read"));
      document.head.append(script);
    };
    model.on("msg:custom", take);
    model.send({kind: "plotly"});
  });
}

function frame(el) {
  const figure = document.createElement("figure");
  const plot = document.createElement("div");
  const caption = document.createElement("figcaption");
  figure.style.margin = "0 0 1em";
  caption.className = "labkit-note";
  caption.textContent = "drawing ...";
  plot.setAttribute("role", "img");
  figure.append(plot, caption);
  el.append(figure);
  return {figure, plot, caption, drawn: "", clicks: false};
}

function render({model, el}) {
  const frames = [];
  let queue = Promise.resolve();
  let gone = false;
  const draw = async () => {
    const wanted = model.get("figures");
    while (frames.length < wanted.length) frames.push(frame(el));
    while (frames.length > wanted.length) frames.pop().figure.remove();
    const library = await plotly(model);
    for (const [i, one] of wanted.entries()) {
      const text = JSON.stringify(one);
      if (gone || !frames[i] || frames[i].drawn === text) continue;
      const {plot, caption} = frames[i];
      const copy = labkitFit(one, el.clientWidth || 900);
      const alt = (copy.layout.meta && copy.layout.meta.alt) || "figure";
      plot.style.height = `${copy.layout.height || 400}px`;  // a resize reads it from the page
      await library.react(plot, copy.data, copy.layout, CONFIG);
      if (!frames[i].clicks) {
        frames[i].clicks = true;
        plot.on("plotly_click", told => {
          const point = told.points && told.points[0] && told.points[0].customdata;
          if (typeof point === "string") model.send({kind: "click", point});
        });
      }
      frames[i].drawn = text;
      plot.setAttribute("aria-label", alt);
      caption.textContent = alt;
    }
  };
  const again = () => { queue = queue.then(draw).catch(e => { el.dataset.error = String(e); }); };
  let wide = 0;
  const watch = new ResizeObserver(() => {
    const library = window.labkitPlotly;
    if (!library || el.clientWidth === 0 || el.clientWidth === wide) return;
    wide = el.clientWidth;
    frames.filter(f => f.drawn).forEach(f => { library.Plots.resize(f.plot); f.drawn = ""; });
    again();  // texts are broken into lines for the new width
  });
  watch.observe(el);
  model.on("change:figures", again);
  again();
  return () => {
    gone = true;
    watch.disconnect();
    model.off("change:figures", again);
    if (window.labkitPlotly) frames.forEach(f => window.labkitPlotly.purge(f.plot));
  };
}

export default {render};
