"""One experiment a notebook: what it measures, predicts and concludes. Widgets are elsewhere (labkit.panels.front)."""
