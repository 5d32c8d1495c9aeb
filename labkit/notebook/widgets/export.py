"""Take what a panel shows out of JupyterLab: parameters as YAML, the whole notebook as an offline report."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from labkit import disk
from labkit.report import html as report
from labkit.report import verdict

if TYPE_CHECKING:
    import nbformat

    from labkit.notebook.panel import Panel

_CELL = re.compile(r"\.(ask|predict|run|findings|summary)\(\)\s*$", re.M)


def save_parameters(panel: "Panel") -> Path:
    """Write the present settings as YAML for `labkit run NOTEBOOK -f FILE` (or papermill -f) and return its path."""
    e = panel.experiment
    path = disk.fresh(panel.out_dir, f"{e.name}-params", ".yaml")
    values = e.parameters()
    if "out_dir" in values:
        values["out_dir"] = _from_root(panel.out_dir)
    head = f"# Settings of {e.name}. To measure them again: labkit run {e.name} -f {_from_root(path)}\n"
    disk.write_text(path, head + yaml.safe_dump(values, sort_keys=False), "the settings are as they were")
    return path


def _from_root(path: Path) -> str:
    """A path as `labkit run` reads it, which is called in the folder above the notebooks: kernels count theirs from the
    notebook's own folder."""
    source = notebook_path()
    if source is None or path.is_absolute():
        return str(path)
    return os.path.relpath(path.resolve(), source.resolve().parent.parent)


def notebook_path() -> Path | None:
    """The notebook that this kernel belongs to, where the front end says so (jupyter_server does)."""
    given = os.environ.get("JPY_SESSION_NAME", "")
    return Path(given) if given.endswith(".ipynb") and Path(given).is_file() else None


def export_report(panel: "Panel") -> Path:
    """Write the notebook with the panel's present state as one offline HTML file and return its path.

    Prose and code come from the saved file; what the panel shows live is put in as static figures and tables.
    """
    from labkit.report.quick import nbformat

    source = notebook_path()
    nb = nbformat.read(source, as_version=4) if source else _bare(panel)
    for cell in nb.cells:
        found = _CELL.search(cell.source) if cell.cell_type == "code" else None
        if found:
            outputs = panel.static(found[1])
            cell["outputs"] = [nbformat.v4.new_output("display_data", data=d, metadata=m) for d, m in outputs]
    nb.metadata["papermill"] = {"parameters": panel.experiment.parameters()}
    path = disk.fresh(panel.out_dir, f"{panel.experiment.name}-report", ".html")
    records = verdict.records_of(panel.record) if panel.record is not None else []
    disk.write_text(path, report.render([(panel.experiment.name, nb)], records), "notebook and records are kept")
    return path


def _bare(panel: "Panel") -> "nbformat.NotebookNode":
    """A notebook of the panel's cells alone, for front ends that do not say which file they show."""
    from labkit.report.quick import nbformat

    cells = [nbformat.v4.new_markdown_cell(f"# {panel.experiment.name}")]
    cells += [nbformat.v4.new_code_cell(f"lab.{name}()") for name in ("ask", "predict", "run", "findings")]
    return nbformat.v4.new_notebook(cells=cells)
