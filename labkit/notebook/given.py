"""Where a notebook's values come from, the same for `labkit run` and for papermill called by hand.

    what somebody set by name (`-p`, or a cell after the parameters cell)
    over the file's own lines for this notebook (`notebooks: {05_mtp: ...}`)
    over the file's `common` lines
    over the defaults in the parameters cell

`papermill -f params/pocket.yaml` sets the two sections as two variables, which every parameters cell has.
"""

import ast
import os
from pathlib import Path

from labkit.errors import BadInput
from labkit.params import COMMON, NOTEBOOKS, ROOT, Params, common

NAMES = (
    "00_start_here 01_bytes 02_baseline 03_humming 04_fp8_head 05_mtp 06_silent_fallback 07_real_load 08_long_context"
    " 09_report 10_sweep"
).split()


def settle(name: str, parameters: dict, cells: list[str] | None = None) -> dict:
    """The values of notebook `name`, from the variables of its parameters cell and the two sections among them.

    cells: sources of the cells that ran so far (by default this kernel's). Raises BadInput for a value that would reach
    nobody: a section for no notebook, a name that neither the lab nor this notebook has, a `-p` that it does not have.
    """
    values = dict(parameters)
    sections = values.pop(COMMON, None) or {}, values.pop(NOTEBOOKS, None) or {}
    said = _set_by_name(_history() if cells is None else cells, parameters)
    shared = common({COMMON: sections[0]})
    own = _section(name, sections[1])
    for where, lines in ((COMMON, shared), (f"{NOTEBOOKS}.{name}", own)):
        for key, value in lines.items():
            if key in said:
                continue
            if key in values or (key in Params.model_fields and "engine" in values):
                values[key] = value
            elif key not in Params.model_fields:
                raise BadInput(f"{where}.{key}", value, "one of " + _names(parameters))
    for place in ("out_dir", "record", "folder"):
        if values.get(place) is not None:
            values[place] = from_root(values[place])
    return values


def _section(name: str, sections: object) -> dict:
    if not isinstance(sections, dict) or not all(isinstance(v, dict) for v in sections.values()):
        raise BadInput(NOTEBOOKS, sections, "a mapping of notebook names to their parameters")
    for other, lines in sections.items():
        if other not in NAMES and other != name:
            raise BadInput(f"{NOTEBOOKS}.{other}", lines, "a section for one of " + ", ".join(NAMES))
    return sections.get(name, {})


def _history() -> list[str]:
    """Sources of the cells that this kernel ran, [] outside of one."""
    from IPython import get_ipython

    shell = get_ipython()
    return list(shell.user_ns.get("In", [])) if shell is not None else []


def _set_by_name(cells: list[str], parameters: dict) -> set[str]:
    """Names that a cell after the last parameters cell assigned. papermill's own cell may hold none that is unknown."""
    trees = [_parsed(source) for source in cells]
    at = max((i for i, tree in enumerate(trees) if COMMON in _assigned(tree, ast.AnnAssign)), default=None)
    if at is None:
        return set(parameters) if not cells else set()
    out: set[str] = set()
    for source, tree in zip(cells[at + 1 :], trees[at + 1 :], strict=True):
        found = _assigned(tree, ast.Assign)
        if source.startswith("# Parameters"):
            for key, value in found.items():
                if key not in parameters:
                    raise BadInput(key, value, "one of " + _names(parameters))
        out |= set(found)
    return out - {COMMON, NOTEBOOKS}


def _names(parameters: dict) -> str:
    return ", ".join(name for name in parameters if name not in (COMMON, NOTEBOOKS))


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:  # a magic
        return None


def _assigned(tree: ast.Module | None, kind: type) -> dict[str, object]:
    """Names that lines of this kind assign at the top of a cell, each with the text of its value."""
    lines = [line for line in (tree.body if tree else []) if isinstance(line, kind) and line.value is not None]
    targets = [(t, line.value) for line in lines for t in getattr(line, "targets", None) or [line.target]]
    return {t.id: ast.unparse(value) for t, value in targets if isinstance(t, ast.Name)}


def from_root(path: str) -> str:
    """A relative path, counted from the lab's folder, as this process reaches it: records of a notebook land in one
    place whether it is opened in JupyterLab, run from the lab's folder or from anywhere else."""
    root, here = project(), Path.cwd()
    if Path(path).is_absolute() or root == here:
        return path
    return os.path.relpath(root / path) if here.is_relative_to(root) else str(root / path)


def project() -> Path:
    """The lab's folder: $LABKIT_ROOT (where `labkit run` was called), else the nearest one above the working directory
    that holds notebooks/ and params/, else the checkout that labkit is imported from, else the working directory."""
    here = Path.cwd()
    if os.environ.get(ROOT):
        return Path(os.environ[ROOT]).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if (folder / "notebooks").is_dir() and (folder / "params").is_dir():
            return folder
    return here
