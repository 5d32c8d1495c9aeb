"""Notebook 01 runs headless at other parameters, and its numbers are the library's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit import catalog
from labkit.roofline.account import per_tensor

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_bytes.ipynb"


def test_papermill_then_assert(tmp_path):
    out = tmp_path / "01.ipynb"
    given = {
        "model": "qwen3-30b-a3b",
        "machine": "h200",
        "context": 4096,
        "my_model": "gpt-oss-120b",
        "my_machine": "b200",
    }
    argv = [sys.executable, "-m", "papermill", str(NOTEBOOK), str(out), "-k", "python3", "--no-progress-bar"]
    for name, value in given.items():
        argv += ["-p", name, str(value)]
    env = os.environ | {"LABKIT_LIVE": "0", "LABKIT_STATIC": "0"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    text = "\n".join(
        json.dumps(o.get("data", {}).get("text/plain", "")) + o.get("text", "")
        for c in nbformat.read(out, 4).cells
        if c.cell_type == "code"
        for o in c.outputs
    )
    step = per_tensor(catalog.load_config("qwen3-30b-a3b"), context=4096).evidence()
    mine = per_tensor(catalog.load_config("gpt-oss-120b"), context=4096).evidence()
    assert step.quantity() in text and mine.quantity() in text and "NVIDIA B200" in text


def test_the_source_is_clean():
    nb = nbformat.read(NOTEBOOK, 4)
    assert nb.metadata.kernelspec.name == "python3"
    code = [c for c in nb.cells if c.cell_type == "code"]
    assert all(not c.outputs and c.execution_count is None for c in code)
    assert len([c for c in code if "parameters" in c.metadata.get("tags", [])]) == 1
    headings = [c.source.splitlines()[0] for c in nb.cells if c.cell_type == "markdown"]
    assert all(h.startswith("#") for h in headings)


@pytest.mark.parametrize("changed, what", [({"context": "banana"}, "context"), ({"top_k": 1.5}, "top_k")])
def test_wrong_types_are_refused_before_a_kernel_starts(changed, what):
    from labkit.batch.schema import check_values
    from labkit.errors import BadInput

    with pytest.raises(BadInput, match=what):
        check_values(NOTEBOOK, changed)
