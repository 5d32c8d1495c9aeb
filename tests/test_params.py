"""Parameters: wrong types and unknown names are refused by name; YAML's habits are met."""

import json
from pathlib import Path

import pytest
import yaml

from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.params import Params, load_params, read_yaml, schema

SHIPPED = Path(__file__).parents[1] / "params"


def test_defaults_are_the_shipped_profile():
    shipped = load_params(SHIPPED / "pocket.yaml")
    assert shipped.replace(arms=None) == Params(engine=EngineConfig(threads=1))


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
        ({"arms": []}, "arms"),
        ({"arms": [{"name": "a"}, {"name": "b", "expects": "nothing"}]}, r"arms\[1\].expects"),
        ({"only": ["baseline", "turbo words"]}, r"only\[1\]"),
        ({"common": {"repeat": 3}}, "repeat"),
        ({"common": {"repeats": 3}, "repeats": 4}, "repeats"),
        ({"common": 3}, "common"),
        ({"engine": {"engine": "pocket", "threads": "many"}}, "engine.threads"),
    ],
)
def test_bad_values_name_their_field(given, field):
    with pytest.raises(BadInput, match=f"^{field}: got .*; accepted: "):
        load_params(given)


def test_yaml_numbers_that_are_strings(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("timeout_s: 1e2\nrepeats: '3'\noutput_tokens:\nonly: [baseline]\nengine: pocket\n")
    got = load_params(path)
    assert (got.timeout_s, got.repeats, got.output_tokens, got.only) == (100.0, 3, None, ("baseline",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: [1", "line 1|line 2"),
        (b"- 1\n- 2\n", "mapping"),
        (None, "existing YAML"),
        (b"a: \xff", "read"),
        ("", "read"),
    ],
)
def test_unreadable_files(tmp_path, text, says):
    path = tmp_path / "p.yaml"
    if text == "":
        path.mkdir()
    elif text is not None:
        path.write_bytes(text)
    with pytest.raises(BadInput, match=says):
        load_params(path)


def test_saved_parameters_load_to_the_same():
    given = {
        "engine": {"engine": "pocket", "env": {"A": 1}},
        "arms": [{"name": "a"}, {"name": "b", "from": "a", "expect": "fewer bytes", "set": {"fp8_lm_head": True}}],
    }
    params = load_params(given, repeats=2)
    assert params.repeats == 2 and [a.name for a in params.ladder()] == ["a", "b"]
    assert load_params(yaml.safe_load(yaml.safe_dump(params.as_dict()))) == params


def test_load_names_what_the_engine_is_asked_and_not_which_engine():
    one, two = load_params({"engine": "pocket"}), load_params({"engine": {"engine": "pocket", "fp8_lm_head": True}})
    assert one.load() == two.load() and one.load() != load_params({"seed": 2}).load()


@pytest.mark.parametrize("name", ["pocket", "spark", "h200", "attach"])
def test_shipped_profiles_are_valid(name):
    assert isinstance(load_params(SHIPPED / f"{name}.yaml"), Params)


@pytest.mark.parametrize(("name", "engine"), [("pocket", "pocket"), ("spark", "sglang")])
def test_shipped_profiles_show_the_engines_own_ladder(name, engine):
    params = load_params(SHIPPED / f"{name}.yaml")
    assert params.arms == ladder.shipped(engine) and params.ladder()


def test_the_h200_ladder_is_the_engines_own_and_the_attention_backend_between():
    names = [a.name for a in load_params(SHIPPED / "h200.yaml").ladder()]
    assert [n for n in names if n not in ("fa3", "mtp-flashinfer")] == [s.name for s in ladder.shipped("sglang")]
    assert names.index("fp8-head") < names.index("fa3") < names.index("mtp")


def test_editors_get_the_schema_of_today():
    """`labkit schema > params/schema.json` after a change of a field."""
    assert json.loads((SHIPPED / "schema.json").read_text()) == schema()
    for path in SHIPPED.glob("*.yaml"):
        assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
        assert set(read_yaml(path)) <= set(schema()["properties"])
