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
figures.forEach((f, i) => Plotly.newPlot('figure-' + i, f.data, f.layout, config));
