// Breaks titles, axis titles, notes and legend names into lines that a narrow figure holds: plotly breaks no text by itself.
function labkitFit(figure, width) {
  const {data, layout} = JSON.parse(JSON.stringify(figure));
  const broken = (text, room, size, least = 12) => String(text).split("<br>").map(line => {
    const most = Math.max(least, Math.floor(room / (0.56 * size)));
    const lines = [""];
    for (const word of line.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + 1 + word.length > most) lines.push(word);
      else lines[lines.length - 1] = last ? last + " " + word : word;
    }
    return lines.join("<br>");
  }).join("<br>");
  const rows = text => (text.match(/<br>/g) || []).length;
  if (layout.title && layout.title.text) {
    const text = broken(layout.title.text, width - 64, 16);
    // A figure that asks for more room above its plot keeps it: names of upright axes stand there.
    layout.margin = {...layout.margin, t: ((layout.margin || {}).t || 56) + 20 * rows(text)};
    layout.height = (layout.height || 400) + 20 * (rows(text) - rows(layout.title.text));
    layout.title.text = text;
  }
  // Names at places along an axis: plotly turns those that are wider than their place, and hides the last one where it
  // then reaches out of the figure. Broken into lines they stay upright; where a word is too wide all turn to the left,
  // on a phone as far as they go.
  const places = axis => {
    const em = 0.56 * 13, room = (width - 120) / axis.ticktext.length;
    const wide = texts => Math.max(...texts.flatMap(t => t.split("<br>")).map(t => t.length)) * em;
    const before = axis.ticktext.map(String), texts = before.map(t => broken(t, room - em, 13, 4));
    if (wide(before) <= room - em) return;
    const upright = wide(texts) <= room;
    const most = all => Math.max(...all.map(rows));
    const [turn, share] = width < 500 ? [-90, 0.9] : [-40, 0.6];
    const higher = upright ? 18 * (most(texts) - most(before)) : share * wide(before);
    Object.assign(axis, upright ? {ticktext: texts, tickangle: 0} : {tickangle: turn});
    layout.height = (layout.height || 400) + higher;
  };
  for (const name of Object.keys(layout).filter(n => /^[xy]axis\d*$/.test(n))) {
    const axis = layout[name];
    const room = name[0] === "x" ? width - 190 : 0.45 * (layout.height || 400);
    if (axis.title && axis.title.text) axis.title.text = broken(axis.title.text, room, 13);
    if (name[0] === "x" && axis.dtick === "D2" && width < 500) axis.dtick = 1;  // whole decades
    if (name[0] === "x" && axis.ticktext && axis.type !== "log") places(axis);
  }
  // What only a wide figure has room for; on a phone it would lie over its neighbour.
  if (layout.annotations && width < 500) layout.annotations = layout.annotations.filter(n => n.name !== "wide");
  const raise = pixels => {
    layout.margin = {...layout.margin, t: ((layout.margin || {}).t || 56) + pixels};
    layout.height = (layout.height || 400) + pixels;
  };
  for (const note of layout.annotations || []) if (note.text) {
    // Lines above the plot have its whole width, and push it down where they become more.
    const above = note.yref === "paper" && note.y >= 1 && note.yanchor === "bottom" && note.xanchor === "left";
    const size = (note.font || {}).size || 13;
    const text = above ? broken(note.text, width - 90, size) : broken(note.text, 0.4 * width, 13);
    if (above) raise(1.4 * size * (rows(text) - rows(note.text)));
    note.text = text;
  }
  for (const trace of data) {
    if (trace.name) trace.name = broken(trace.name, width - 90, 13);
    if (trace.type === "treemap" && width < 700) {  // its smaller areas hold a name, not all that is said of them
      trace.customdata = trace.labels.map(name => broken(name, 80, 12, 8));
      trace.texttemplate = "%{customdata}<br>%{percentRoot:.0%}";
    }
    if (width >= 500) continue;
    // On a phone the names of points lie on each other: they stay in the hover text. Names of upright axes are turned.
    if (/text/.test(trace.mode || "")) trace.mode = trace.mode.replace(/\+?text/, "") || "markers";
    if (trace.type === "parcoords") { trace.labelangle = -90; raise(40); }
  }
  // plotly puts the first line of a title of several where its only line would end: above the figure's edge.
  if (layout.title && rows(layout.title.text || "")) layout.title.y = 1 - 23 / layout.height;
  return {data, layout};
}
