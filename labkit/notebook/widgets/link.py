"""A link to a file that was written, which says whether it opens in this JupyterLab."""

from pathlib import Path

import anywidget
import traitlets


class Link(anywidget.AnyWidget):
    """path: absolute, or "" for nothing. home: the home folder, by which JupyterLab shortens its own root. opened:
    what the page found: "yes", or why not."""

    _esm = (Path(__file__).parent / "link.js").read_text(encoding="utf-8")
    path = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)
    home = traitlets.Unicode(str(Path.home())).tag(sync=True)
    opened = traitlets.Unicode().tag(sync=True)

    def show(self, path: Path) -> None:
        """Link to this file now."""
        self.opened = ""
        self.shown = str(path)
        self.path = str(path.resolve())
