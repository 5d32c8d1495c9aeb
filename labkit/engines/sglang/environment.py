"""Which environment variables a SGLang knows: an unknown one is silent there, so the lab must ask."""

import importlib.util
import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

PREFIXES = ("SGLANG_", "SGL_")
# Read by labkit's own plugin; what they do is in labkit/engines/sglang/plugin/__init__.py.
PLUGIN = (
    "SGLANG_ENABLE_FP8_LM_HEAD",
    "LABKIT_TENSOR_ONLY_HEAD",
    "LABKIT_SIMULATE_ACC_LEN_FILE",
    "LABKIT_HOLD_FILE",
    "LABKIT_DUMMY_WEIGHTS",
)


@cache
def recorded() -> tuple[str, frozenset[str]]:
    """(version, names) of the release whose list ships with labkit."""
    document = json.loads(files("labkit.engines.sglang").joinpath("environment.json").read_text())
    return document["version"], frozenset(document["declared"]) | frozenset(document["read_directly"])


def installed() -> frozenset[str] | None:
    """Names declared by the SGLang in this Python, read from its source without importing it; None if there is none."""
    try:
        spec = importlib.util.find_spec("sglang")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        source = Path(folder) / "srt" / "environ.py"
        if source.is_file():
            return frozenset(re.findall(r"^    ([A-Z][A-Z0-9_]+) = Env", source.read_text(), re.MULTILINE))
    return None


def knows(variable: str, version: str | None = None) -> bool | None:
    """Whether SGLang of `version` reads this variable; None when that cannot be told.

    Only SGL* names can be judged: the rest belong to the libraries below. An installed SGLang answers for itself,
    the shipped list for its own version.
    """
    if not variable.startswith(PREFIXES):
        return None
    here = installed()
    if here is not None and version in (None, _installed_version()):
        return variable in here or variable in recorded()[1]
    shipped, names = recorded()
    if version not in (None, shipped):
        return None
    return variable in names


def _installed_version() -> str | None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of("sglang")
    except PackageNotFoundError:
        return None
