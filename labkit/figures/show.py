"""Show a figure so that it lives in JupyterLab and is still a picture on GitHub."""

import base64
import json
import os
import threading
import warnings
from typing import Any

import plotly.graph_objects as go

from labkit.figures.theme import THEME_CSS, alt_of, for_paper

PLOTLY_MIME = "application/vnd.plotly.v1+json"
WIDTH = 900  # pixels, and no more: JupyterLab shows the picture unscaled until one points at it, and cuts what is wider
_lock = threading.Lock()
_server_started = False


def png(figure: go.Figure, *, width: int = WIDTH, scale: float = 1.0) -> bytes:
    """The figure on white as PNG bytes. Raises RuntimeError where no Chrome or Chromium is installed."""
    global _server_started
    import kaleido

    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not _server_started:  # one browser for the whole notebook: 0.2 s a picture instead of 3
            kaleido.start_sync_server(silence_warnings=True)
            _server_started = True
        return for_paper(figure).to_image(format="png", width=width, height=figure.layout.height or 400, scale=scale)


def bundle(figure: go.Figure, *, picture: bool | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """MIME data and metadata of a figure: plotly's JSON, a PNG, and words.

    picture None means: unless LABKIT_STATIC=0 (tests save the time). Without a browser for the PNG the words say
    what is lost; nothing is raised.
    """
    alt = alt_of(figure)
    data: dict[str, Any] = {PLOTLY_MIME: json.loads(figure.to_json()), "text/plain": f"Figure: {alt}"}
    metadata: dict[str, Any] = {}
    if picture is None:
        picture = os.environ.get("LABKIT_STATIC", "1") != "0"
    if picture:
        try:
            data["image/png"] = base64.b64encode(png(figure)).decode()
            metadata["image/png"] = {"alt": alt}
        except RuntimeError:  # kaleido's ChromeNotFoundError is one
            data["text/plain"] += (
                " [No Chrome or Chromium was found, so there is no picture beside the live figure: GitHub and other"
                " viewers that run no script show only this sentence.]"
            )
    return data, metadata


def show(figure: go.Figure, *, picture: bool | None = None) -> None:
    """Display a figure from a notebook cell; see `bundle`."""
    from IPython.display import display

    data, metadata = bundle(figure, picture=picture)
    display(data, metadata=metadata, raw=True)


def follow_theme() -> None:
    """Let the notebook's figures follow JupyterLab's light or dark theme, also when it is switched later."""
    from IPython.display import HTML, display

    display(HTML(f"<style>{THEME_CSS}</style>"))
