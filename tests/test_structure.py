"""README's walk through the rooms is true: its files are there, and one parameter goes the way that it describes."""

import argparse
import re
from pathlib import Path

import pytest

import labkit
from labkit import params
from labkit.engines.adapter import adapter, evidence, flags, options
from labkit.engines.config import EngineConfig
from labkit.engines.server_info import ALLOWED
from labkit.errors import BadInput
from labkit.notebook.settings import of_engine
from labkit.pocket.options import Options
from labkit.pocket.server import add_flags

ROOT = Path(labkit.__file__).parents[1]
ROOMS = ("labkit/", "training/", "benchmarks/", "tests/", "params/", "notebooks/", "outputs/")
FIELD = "speculative.steps"


def named() -> set[str]:
    """Paths and module names that README has in code spans and links."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    spans = re.findall(r"`([\w./-]+)`", text) + re.findall(r"\]\(([\w./-]+)\)", text)
    return {s for s in spans if s.startswith(ROOMS)}


def test_every_file_that_readme_names_is_there():
    found = named()
    assert len(found) > 30
    # What a run makes is not in a fresh checkout.
    assert not [n for n in found if not n.startswith("outputs/RUN") and not (ROOT / n).exists()]


def drafting(steps: int) -> dict:
    return {"steps": steps, "topk": 1, "draft_tokens": steps + 1}


def test_draft_steps_go_from_yaml_to_the_flag_and_back_from_the_server(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("common:\n  arms:\n    - {name: mine, set: {speculative: {steps: 5, topk: 1, draft_tokens: 6}}}\n")
    config = params.load_params(file).ladder()[0].config
    words, env = flags(config)
    received = Options.from_flags(words, env)
    assert received.speculative_num_steps == 5
    seen = options("pocket")[FIELD].seen
    assert seen in ALLOWED
    [said] = [e for e in evidence(config, {seen: received.speculative_num_steps}) if e["field"] == FIELD]
    assert (said["asked"], said["seen"], said["in_effect"]) == (5, 5, True)
    [said] = [e for e in evidence(config, {seen: 3}) if e["field"] == FIELD]
    assert said["in_effect"] is False


def test_one_declaration_gives_help_slider_and_range():
    declared = options("pocket")[FIELD]
    parser = argparse.ArgumentParser()
    add_flags(parser)
    [flag] = [a for a in parser._actions if declared.sent in a.option_strings]
    assert declared.help in flag.help
    slider = of_engine("pocket", FIELD, "draft steps")
    assert (slider.low, slider.high) == (declared.low, declared.high)
    most = int(declared.high)
    EngineConfig(speculative=drafting(most))
    with pytest.raises(BadInput) as refused:
        EngineConfig.from_dict({"speculative": drafting(most + 1)})
    assert "speculative.steps" in refused.value.field and f"{most}" in refused.value.accepted


@pytest.mark.parametrize("engine", ["pocket", "sglang", "llamacpp"])
def test_no_option_is_declared_twice_and_every_one_is_a_field(engine):
    declared = adapter(engine).OPTIONS
    for of in ("field", "seen"):
        names = [getattr(o, of) for o in declared if getattr(o, of)]
        assert len(names) == len(set(names))
    schema = params.schema()["$defs"]
    fields = {*schema["EngineConfig"]["properties"], *(f"speculative.{n}" for n in schema["Speculative"]["properties"])}
    assert {o.field for o in declared} <= fields
