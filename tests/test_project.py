"""The project's own files: environment, package list, things that must never be in the tree."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


def tracked() -> list[Path]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if out.returncode != 0:
        pytest.skip("not a git checkout: there is no list of tracked files")
    return [ROOT / name for name in out.stdout.split("\0") if name]


def test_a_notebooks_kernel_does_not_load_what_only_reports_need():
    """nbformat takes four seconds of a kernel's start: it compiles a grammar of web addresses."""
    modules = "labkit.notebook, labkit.notebook.swept, labkit.notebook.widgets.front"
    code = f"import sys, {modules}; print('nbformat' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert out.stdout.split() == ["False"]


def test_a_run_does_not_compile_a_grammar_of_web_addresses():
    """jsonschema would, for two seconds, as it is loaded; it is only kept from it, and others may still have it."""
    code = "import sys, importlib.util; from labkit.batch import run; run._papermill(); name = 'rfc3987_syntax'; "
    code += "print(name in sys.modules, importlib.util.find_spec(name) is not None)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert out.stdout.split() == ["False", "True"]


def test_the_process_that_watches_an_engine_is_a_small_one():
    """Every engine waits for its watcher: it needs none of what reads parameters."""
    code = "import sys, labkit.engines.watch; print({'pydantic', 'numpy', 'yaml'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert out.stdout.strip() == "set()"


def test_environment_yml_gives_the_whole_lab_and_comments_every_line():
    text = (ROOT / "environment.yml").read_text()
    assert all("#" in line for line in text.splitlines() if line.strip())
    spec = yaml.safe_load(text)
    pip = next(d["pip"] for d in spec["dependencies"] if isinstance(d, dict))
    assert "-e .[test]" in pip
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["sglang"]
    same = {re.sub(r"[\s'\"]", "", p) for p in pinned}
    assert {re.sub(r"[\s'\"]", "", p) for p in pip if p.startswith("sglang")} == same


def test_every_dependency_has_a_range_and_a_reason():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    listed = [line.strip() for line in lines if re.match(r'\s+"[A-Za-z0-9_.-]+[><=]', line)]
    assert len(listed) > 10
    assert all("#" in line or "sglang" in line for line in listed)


STARTED = {"jupyterlab", "ipykernel"}  # programs, which nobody imports
NAMES = {"pillow": "PIL", "pyyaml": "yaml", "ipython": "IPython"}  # packages whose module has another name
WHERE_IT_IS = {
    "sglang",
    "torch",
    "sgl_kernel",
    "xllamacpp",
    "distributed",
    "dask",
    "datasets",
    "reasoning_gym",
}  # extras, or brought by SGLang


def test_the_lab_declares_what_it_imports_and_imports_what_it_declares():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    packages = {re.match(r"[\w.-]+", line)[0] for line in listed}
    declared = {NAMES.get(p, p.replace("-", "_")) for p in packages - STARTED}
    imported = set()
    for path in (ROOT / "labkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {a.name.split(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    own = {*sys.stdlib_module_names, "labkit", "pydantic_core"}  # the last is pydantic's other half
    assert imported - own - WHERE_IT_IS == declared


@pytest.mark.slow
def test_pip_part_resolves():
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    out = subprocess.run([*pip, "-e", ".[test]"], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert out.returncode == 0, out.stderr[-2000:]


def test_no_file_is_too_large_and_weights_stay_within_their_budget():
    sizes = {p: p.stat().st_size for p in tracked() if p.is_file()}
    assert max(sizes.values()) <= 16 * 2**20
    assert sum(s for p, s in sizes.items() if p.suffix == ".safetensors") <= 45e6
    examples = sum(s for p, s in sizes.items() if "examples" in p.parts and "pocket" in p.parts)
    assert examples < 10e6


def test_no_placeholder_or_private_path_is_left_in_the_tree():
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b|(^|[\s\"'(=])/(root|home)/\w", re.M)
    kinds = {".py", ".md", ".yaml", ".toml", ".c", ".h", ".ipynb"}
    written = [p for p in tracked() if p.suffix in kinds and p.is_file() and "examples" not in p.parts]
    for path in written:
        if path != Path(__file__):
            hit = words.search(path.read_text())
            assert hit is None, f"{path.relative_to(ROOT)}: {hit.group().strip()}"
