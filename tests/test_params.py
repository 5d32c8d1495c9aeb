"""Parameters: wrong types and unknown names are refused by name; YAML's habits are met."""

from pathlib import Path

import pytest

from labkit import fields
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.params import Params, dump_params, load_params

SHIPPED = Path(__file__).parents[1] / "params"


def test_defaults_are_the_shipped_profile():
    shipped = load_params(SHIPPED / "pocket.yaml")
    assert shipped == Params(engine=EngineConfig(engine="pocket", model="pocket"))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"repeats": "banana"}, "repeats"),
        ({"repeats": 0}, "repeats"),
        ({"repeat": 3}, "repeat"),
        ({"workload": 3}, "workload"),
        ({"output_tokens": 1}, "output_tokens"),
        ({"seed": -1}, "seed"),
        ({"timeout_s": "soon"}, "timeout_s"),
        ({"rungs": []}, "rungs"),
        ({"rungs": ["baseline", "turbo"]}, "rung"),
        ({"engine": {"engine": "pocket", "threads": "many"}}, "engine.threads"),
    ],
)
def test_bad_values_name_their_field(given, field):
    with pytest.raises(BadInput, match=f"^{field}: got .*; accepted: "):
        load_params(given)


def test_yaml_numbers_that_are_strings(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("timeout_s: 1e2\nrepeats: '3'\noutput_tokens:\nrungs: [baseline, humming]\nengine: pocket\n")
    got = load_params(path)
    assert (got.timeout_s, got.repeats, got.output_tokens, got.rungs) == (100.0, 3, None, ("baseline", "kernels"))


@pytest.mark.parametrize(
    ("text", "says"), [("a: [1", "line 1|line 2"), ("- 1\n- 2\n", "mapping"), (None, "existing YAML")]
)
def test_unreadable_files(tmp_path, text, says):
    path = tmp_path / "p.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=says):
        load_params(path)


def test_saved_parameters_load_to_the_same(tmp_path):
    schema = {"contexts": fields.list_of(fields.integer(1, 1 << 20)), "guess": fields.real(0, 100)}
    params = load_params(
        {"engine": {"engine": "pocket", "fp8_lm_head": True, "env": {"A": 1}}, "contexts": [1, 2], "guess": "1e-1"},
        also=schema,
        repeats=2,
    )
    assert params.extra == {"contexts": (1, 2), "guess": 0.1} and params.repeats == 2
    dump_params(params, tmp_path / "p.yaml")
    assert load_params(tmp_path / "p.yaml", also=schema) == params
    with pytest.raises(BadInput, match="contexts"):
        load_params(tmp_path / "p.yaml")


def test_load_names_what_the_engine_is_asked_and_not_which_engine():
    one, two = load_params({"engine": "pocket"}), load_params({"engine": {"engine": "pocket", "fp8_lm_head": True}})
    assert one.load() == two.load() and one.load() != load_params({"seed": 2}).load()


@pytest.mark.parametrize("name", ["pocket", "spark", "h200", "attach"])
def test_shipped_profiles_are_valid(name):
    assert isinstance(load_params(SHIPPED / f"{name}.yaml"), Params)
