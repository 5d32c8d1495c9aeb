"""Notebook 01: bytes without an engine.

`choice` holds the reader's settings and `counted` their accounts; `sections` lists what is shown: `amounts`, `speed`,
`simulator`; `closing` has the reader's own numbers. `panel` shows it headless, `front` with widgets, `link` keeps it.
"""

from labkit.notebook.bytes.panel import BytesPanel

__all__ = ["BytesPanel"]
