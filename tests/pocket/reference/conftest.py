import importlib.util
from pathlib import Path

import pytest

from training.reference import Weights


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    spec = importlib.util.spec_from_file_location("tiny", Path(__file__).with_name("tiny.py"))
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    return tiny.write(tmp_path_factory.mktemp("tiny"), seed=0)


@pytest.fixture(scope="session")
def weights(tiny_folder) -> Weights:
    return Weights(tiny_folder)
