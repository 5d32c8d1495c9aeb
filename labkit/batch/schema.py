"""What a notebook's parameters cell accepts, and whether given values fit: papermill itself would only warn.

A parameters cell holds lines such as `repeats: int = 5  # measured passes`. The annotation is the type.
"""

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import BadInput
from labkit.fields import Flag, check, list_of, real, whole
from labkit.params import COMMON, NOTEBOOKS, Params, common
from labkit.report.quick import nbformat

_KINDS = {
    "int": whole(),
    "float": real(),
    "bool": Flag,
    "str": str,
    "dict": dict[str, Any],
    "list": list_of(Any),
}


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell. `kind` is one of the types above; `optional` allows None."""

    name: str
    kind: str
    optional: bool
    default: object
    help: str

    def check(self, value: object) -> object:
        """The value in this parameter's type. Raises BadInput naming it."""
        if value is None and self.optional:
            return None
        got = check(_KINDS[self.kind], self.name, value)
        return list(got) if isinstance(got, tuple) else got


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, in order. Raises BadInput for a notebook without exactly one cell tagged
    `parameters`, or a line in it that is not `name: type = literal`."""
    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except Exception as e:
        raise BadInput("notebook", str(notebook), f"a readable notebook ({type(e).__name__})") from None
    tagged = [c for c in cells if c.cell_type == "code" and "parameters" in c.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise BadInput("notebook", str(notebook), f"exactly one cell tagged `parameters`, found {len(tagged)}")
    source = tagged[0].source
    remarks = {
        t.start[0]: t.string.lstrip("# ").strip()
        for t in tokenize.generate_tokens(io.StringIO(source).readline)
        if t.type == tokenize.COMMENT
    }
    out = {}
    for line in ast.parse(source).body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name) or line.value is None:
            raise BadInput(notebook.name, ast.unparse(line), "only lines such as `repeats: int = 5` in this cell")
        name = line.target.id
        kinds = _kinds(line.annotation)
        kind = next((k for k in kinds if k in _KINDS), None)
        if kind is None:
            raise BadInput(f"{notebook.name}: {name}", ast.unparse(line.annotation), "a type of " + ", ".join(_KINDS))
        out[name] = Parameter(
            name, kind, "None" in kinds, ast.literal_eval(line.value), remarks.get(line.end_lineno, "")
        )
    return out


def _kinds(annotation: ast.expr) -> list[str]:
    """["int", "None"] of `int | None` and of "Optional[int]". The notebooks have the latter: papermill knows no
    `|` and would warn of an unknown parameter."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    inner = re.fullmatch(r"Optional\[(.+)\]", str(text))
    parts = [inner[1], "None"] if inner else str(text).split("|")
    return [part.strip().split("[")[0] for part in parts]


def check_values(notebook: Path, given: dict[str, object]) -> dict[str, object]:
    """The given values that this notebook has, each in its type and, for the lab's common fields, in its range.

    Raises BadInput for a wrong type or value. Names that the notebook does not have are left out: see `unknown`.
    """
    known = parameters_of(notebook)
    values = {name: known[name].check(value) for name, value in given.items() if name in known}
    params = Params.checked({name: value for name, value in values.items() if name in Params.model_fields})
    if {"engine", "arms"} & set(values):
        params.ladder()
    return values


def for_notebook(notebook: Path, given: dict[str, object]) -> dict[str, object]:
    """The values of a parameters file for one notebook: its own lines in the section `notebooks` over the common ones.

    Raises BadInput for a section that is no mapping of notebooks to mappings.
    """
    section = given.get(NOTEBOOKS) or {}
    if not isinstance(section, dict) or not all(isinstance(v, dict) for v in section.values()):
        raise BadInput(NOTEBOOKS, section, "a mapping of notebook names to their parameters")
    own = section.get(notebook.stem, {})
    names = parameters_of(notebook)
    for name, value in own.items():
        if name not in names:
            raise BadInput(f"notebooks.{notebook.stem}.{name}", value, "one of " + ", ".join(names))
    values = {**common(given), **own}
    # What the lab knows and this notebook does not ask for by name (a tokenizer, a time limit) reaches it as common.
    rest = {name: values.pop(name) for name in list(values) if name not in names and name in Params.model_fields}
    return values | ({COMMON: rest} if rest and {COMMON, "engine"} <= set(names) else {})


def unknown(notebooks: list[Path], given: dict[str, object]) -> list[str]:
    """Names in a parameters file that neither the lab nor any of these notebooks knows: most likely misspelt."""
    known = set(Params.model_fields).union(*(parameters_of(n) for n in notebooks))
    return [name for name in common(given) if name not in known]
