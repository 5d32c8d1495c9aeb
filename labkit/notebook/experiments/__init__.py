"""One experiment a notebook: what it measures, predicts and concludes. Widgets are elsewhere (notebook.widgets)."""
