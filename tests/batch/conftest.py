import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook


def write(folder, name, *cells):
    nb = new_notebook(cells=list(cells), metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    nbformat.write(nb, folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


@pytest.fixture
def make(tmp_path):
    """make(name, *sources, parameters=...) -> path of a notebook of these cells."""

    def one(name, *sources, parameters='out_dir: str = "outputs"  # where'):
        head = new_code_cell(parameters, metadata={"tags": ["parameters"]})
        return write(tmp_path, name, head, *map(new_code_cell, sources))

    return one
