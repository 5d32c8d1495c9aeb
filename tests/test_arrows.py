"""README's promise about the rooms, held against every import, also those inside functions."""

import ast
from functools import cache
from pathlib import Path

import labkit

ROOT = Path(labkit.__file__).parent
# A room may import from those before it; `labkit/<name>.py` and `labkit/<name>/` are the same to this list.
ROOMS = (
    "errors waits disk units evidence fields catalog roofline workloads pocket engines params records measure checks "
    "figures report notebook batch cli __main__"
).split()
# What the pocket engine, a program of its own, may take from the lab.
POCKET_TAKES = {"errors", "waits"}  # waits: the standard library and errors, so that no compiler is waited for forever


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file; each file is read once for all tests here."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def _modules() -> dict[str, Path]:
    out = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        out[name.removesuffix(".__init__")] = path
    return out


def _imports(path: Path, modules: dict[str, Path], *, typing: bool = True) -> set[str]:
    """typing False: without imports under `if TYPE_CHECKING`, which never run."""
    unused = set()
    if not typing:
        for node in _nodes(path):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                unused.update(id(below) for part in node.body for below in ast.walk(part))
    found = set()
    for node in _nodes(path):
        if id(node) in unused:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else node.module for name in whole)
    return found & set(modules)


def _room(module: str) -> str:
    return (module.split(".") + [""])[1]


def test_every_room_is_on_the_list():
    rooms = {_room(name) for name in _modules()} - {""}
    assert rooms == set(ROOMS)


def test_arrows_point_one_way():
    modules = _modules()
    wrong = [
        f"{name} -> {target}"
        for name, path in modules.items()
        for target in _imports(path, modules)
        if _room(name) and _room(target) and ROOMS.index(_room(target)) > ROOMS.index(_room(name))
    ]
    assert not wrong


def test_the_pocket_engine_takes_next_to_nothing():
    modules = _modules()
    taken = {
        f"{name} -> {target}"
        for name, path in modules.items()
        for target in _imports(path, modules)
        if _room(name) == "pocket" and _room(target) not in {"pocket", ""} | POCKET_TAKES
    }
    assert not taken


def test_no_module_imports_itself_through_others():
    modules = _modules()
    graph = {name: _imports(path, modules, typing=False) - {name} for name, path in modules.items()}
    # Peel off what imports nothing that is left: what cannot be peeled off is on a cycle.
    while peeled := [name for name, targets in graph.items() if not targets & set(graph)]:
        for name in peeled:
            del graph[name]
    # What only leads to a cycle is not on it.
    while outer := [name for name in graph if not any(name in targets for targets in graph.values())]:
        for name in outer:
            del graph[name]
    assert not graph


def test_notebooks_and_installed_code_keep_apart():
    text = "\n".join(path.read_text(encoding="utf-8") for path in _modules().values())
    assert "import training" not in text and "import benchmarks" not in text
    assert "from training" not in text and "from benchmarks" not in text


def _names(path: Path) -> set[str]:
    """What a module binds anywhere, read without running it."""
    found = set()
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return found


def test_every_name_that_is_imported_from_the_lab_is_there():
    """Also inside functions, where a renamed name would wait for the one call that needs it."""
    modules = _modules()
    names = {name: _names(path) for name, path in modules.items()}
    files = [
        p for folder in ("labkit", "tests", "benchmarks", "training") for p in (ROOT.parent / folder).rglob("*.py")
    ]
    lost = [
        f"{path.relative_to(ROOT.parent)}: {node.module}.{alias.name}"
        for path in files
        for node in _nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "labkit"
        for alias in node.names
        if alias.name not in names.get(node.module, ()) and f"{node.module}.{alias.name}" not in modules
    ]
    assert not lost
