"""Do given values reach what they are meant for? papermill sets a variable that nobody reads, and says nothing."""

import ast
import re
from pathlib import Path

from labkit.batch import schema
from labkit.errors import BadInput
from labkit.params import COMMON, NOTEBOOKS
from labkit.report.quick import nbformat

MAGIC = ("%", "!", "?")


def check(notebooks: list[Path], given: dict[str, object], over: dict[str, object]) -> None:
    """Raises BadInput for a value of `over` (the command line) that no chosen notebook has, a section of the parameters
    file that names no notebook, or a value that its notebook overwrites or never reads."""
    known = {n: schema.parameters_of(n) for n in notebooks}
    for name, value in over.items():
        if not any(name in have for have in known.values()):
            accepted = sorted(set().union(*known.values()) - {COMMON, NOTEBOOKS})
            raise BadInput(name, value, f"a parameter of {', '.join(n.stem for n in notebooks)}: {', '.join(accepted)}")
    sections = given.get(NOTEBOOKS) or {}
    there = {path.stem for n in notebooks for path in n.parent.glob("*.ipynb")}
    for name, own in sections.items() if isinstance(sections, dict) else ():
        if name not in there:
            numbered = sorted(s for s in there if s[:2].isdigit()) or sorted(there)
            raise BadInput(f"{NOTEBOOKS}.{name}", own, "a section for one of " + ", ".join(numbered))
    for notebook in notebooks:
        unread = unread_in(notebook)
        for name, value in {**schema.for_notebook(notebook, given), **over}.items():
            if name in unread:
                raise BadInput(f"{notebook.stem}: {name}", value, unread[name])


def unread_in(notebook: Path) -> dict[str, str]:
    """Parameters that are assigned again before anything reads them, or never read, each with a word for a message."""
    cells = [c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]
    at = next(i for i, c in enumerate(cells) if "parameters" in c.metadata.get("tags", []))
    open_names = dict.fromkeys(schema.parameters_of(notebook))
    out: dict[str, str] = {}
    for number, cell in enumerate(cells[at + 1 :], start=at + 2):
        for name, read in _uses(cell.source):
            if name in open_names:
                del open_names[name]
                if not read:
                    out[name] = f"nothing, because code cell {number} overwrites it before anything reads it"
    return out | {name: "nothing, because no cell reads it" for name in open_names}


def _uses(source: str) -> list[tuple[str, bool]]:
    """(name, is it read) of every use of a name, in the order that Python meets them; [] where nothing parses."""
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError:
        return []
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            # The right side first; an augmented assignment reads its target too.
            if node.value is not None:
                visit(node.value)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.append((node.target.id, True))
            for target in getattr(node, "targets", None) or [node.target]:
                visit(target)
        elif isinstance(node, ast.For | ast.AsyncFor):
            for part in (node.iter, node.target, *node.body, *node.orelse):
                visit(part)
        elif isinstance(node, ast.Name):
            found.append((node.id, isinstance(node.ctx, ast.Load)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A magic's words are a string here, and may name what it reads.
            found.extend((word, True) for word in re.findall(r"\w+", node.value) if source.lstrip().startswith(MAGIC))
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(tree)
    return found
