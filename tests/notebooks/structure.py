"""What an executed notebook looks like apart from its numbers: sources, kinds of output, titles of figures."""

import nbformat

PLOTLY = "application/vnd.plotly.v1+json"


def sources(nb: nbformat.NotebookNode) -> list[tuple[str, str]]:
    """Cells without those that a run adds (injected parameters)."""
    added = {"injected-parameters"}
    return [(c.cell_type, c.source) for c in nb.cells if not added & set(c.metadata.get("tags", []))]


def outputs(nb: nbformat.NotebookNode) -> list[list[str]]:
    """For each code cell the kinds of its outputs; a figure is named by its title. Pictures are left out: a machine
    without Chromium makes none."""
    out = []
    for cell in nb.cells:
        if cell.cell_type != "code" or "injected-parameters" in cell.metadata.get("tags", []):
            continue
        kinds = []
        for o in cell.get("outputs", []):
            data = o.get("data", {})
            if PLOTLY in data:
                kinds.append("figure: " + data[PLOTLY]["layout"]["title"]["text"])
            else:
                kinds.append(o.get("name") or " ".join(sorted(k for k in data if k != "image/png")))
        out.append(kinds)
    return out
