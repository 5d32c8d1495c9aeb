"""Show a figure so that it lives in JupyterLab and is still a picture on GitHub."""

import base64
import json
import os
from typing import Any

import plotly.graph_objects as go

from labkit.errors import LabError
from labkit.figures.theme import THEME_CSS, alt_of

PLOTLY_MIME = "application/vnd.plotly.v1+json"
WIDTH = 900  # CSS pixels, and no more: JupyterLab shows the picture until plotly is there, and cuts what is wider
SCALE = 1.5  # picture pixels in one of them: sharp on the screens of today, and still some 50 KB
MOST_BYTES = 60_000  # of a picture that is committed beside its numbers; a larger one is drawn coarser


def png(figure: go.Figure, *, width: int = WIDTH, scale: float = SCALE) -> bytes:
    """The figure on white as PNG bytes, made without a browser. Raises CannotDraw (labkit.figures.traces)."""
    from labkit.figures import picture

    height = figure.layout.height or 400
    return picture.png(figure, width=width, height=height, scale=scale, most_bytes=MOST_BYTES)


def bundle(figure: go.Figure, *, picture: bool | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """MIME data and metadata of a figure: plotly's JSON, a PNG, and words.

    picture None means: unless LABKIT_STATIC=0 (tests save the time). Where no PNG can be drawn the words say why, and
    nothing is raised: a picture must not end a measurement.
    """
    alt = alt_of(figure)
    data: dict[str, Any] = {PLOTLY_MIME: json.loads(figure.to_json()), "text/plain": f"Figure: {alt}"}
    metadata: dict[str, Any] = {}
    if picture is None:
        picture = os.environ.get("LABKIT_STATIC", "1") != "0"
    if picture:
        try:
            made = png(figure)
        except Exception as e:
            why = str(e) if isinstance(e, LabError) else f"{type(e).__name__}: {e}"
            data["text/plain"] += (
                f" [There is no picture beside the live figure ({' '.join(why.split())[:200]}): GitHub and other"
                " viewers that run no script show only this sentence.]"
            )
        else:
            data["image/png"] = base64.b64encode(made).decode()
            wide, high = (int.from_bytes(made[at : at + 4], "big") for at in (16, 20))
            # A long legend makes it higher than the live figure.
            metadata["image/png"] = {"alt": alt, "width": WIDTH, "height": round(high * WIDTH / wide)}
    return data, metadata


def show(figure: go.Figure, *, picture: bool | None = None) -> None:
    """Display a figure from a notebook cell; see `bundle`."""
    from IPython.display import display

    data, metadata = bundle(figure, picture=picture)
    display(data, metadata=metadata, raw=True)


def follow_theme() -> None:
    """Let the notebook's figures follow JupyterLab's light or dark theme, also when it is switched later."""
    from IPython.display import display

    display({"text/html": f"<style>{THEME_CSS}</style>", "text/plain": ""}, raw=True)
