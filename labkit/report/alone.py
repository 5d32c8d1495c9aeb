"""Figures alone as a page like every report: offline, light and dark, a picture where scripts do not run."""

import secrets
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from labkit import disk
from labkit.figures.show import bundle
from labkit.report import page
from labkit.report.html import figure


def write(title: str, shown: Sequence[go.Figure], destination: str | Path) -> Path:
    """Write the page and return its path. Raises disk.NoRoom."""
    figures: list[dict] = []
    places = [figure(bundle(f)[0], figures) for f in shown]
    text = page.document(
        title=title,
        heading=True,
        lead="",
        contents=[],
        body="\n".join(places),
        figures=figures,
        nonce=secrets.token_urlsafe(16),
    )
    disk.write_text(Path(destination), text)
    return Path(destination)
