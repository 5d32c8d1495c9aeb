const root = document.documentElement;
const dark = matchMedia('(prefers-color-scheme: dark)');
const paint = () => { root.dataset.theme = dark.matches ? 'dark' : 'light'; };
paint();
dark.addEventListener('change', paint);
document.getElementById('theme').addEventListener('click', () => {
  root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
});
const figures = JSON.parse(document.getElementById('figures').textContent);
// Only what works offline: plotly's default bar also offers to send the figure to a cloud.
const config = {responsive: true, displaylogo: false, modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']]};
const plots = figures.map((_, i) => document.getElementById('figure-' + i));
const draw = width => plots.forEach((plot, i) => {
  const room = width || plot.clientWidth;
  const {data, layout} = labkitFit(figures[i], room);
  Plotly.react(plot, data, width ? {...layout, width} : layout, config);
});
draw();
let waiting;
let wide = innerWidth;
addEventListener('resize', () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (innerWidth !== wide) { wide = innerWidth; draw(); } }, 200);
});
// A printed page is narrower than a screen: figures are drawn for it, and what is folded is opened, except code.
let closed = [];
addEventListener('beforeprint', () => {
  closed = [...document.querySelectorAll('details:not(.code):not([open])')];
  closed.forEach(d => { d.open = true; });
  draw(640);
});
addEventListener('afterprint', () => {
  closed.forEach(d => { d.open = false; });
  draw();
});
