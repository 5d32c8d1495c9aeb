"""Working copies: sources stay clean, and nothing that somebody saved is lost when a source changes."""

import pytest

from labkit.cli import lab
from labkit.errors import BadInput


def test_copies_are_made_once_and_set_aside_when_their_source_changes(tmp_path):
    source = tmp_path / "notebooks" / "05_mtp.ipynb"
    source.parent.mkdir()
    source.write_text("first")
    assert lab.copies(tmp_path) == {"05_mtp.ipynb": "copied"}
    copy = tmp_path / "work" / "05_mtp.ipynb"
    copy.write_text("mine")
    assert lab.copies(tmp_path) == {"05_mtp.ipynb": "kept"} and copy.read_text() == "mine"
    source.write_text("second")
    assert "work/earlier" in lab.copies(tmp_path)["05_mtp.ipynb"]
    assert copy.read_text() == "second" and source.read_text() == "second"
    assert [p.read_text() for p in (tmp_path / "work" / "earlier").iterdir()] == ["mine"]


def test_a_folder_without_notebooks_is_refused(tmp_path):
    with pytest.raises(BadInput, match="folder"):
        lab.copies(tmp_path)
