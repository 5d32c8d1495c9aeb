"""A ladder is data: what arms are made of, what is refused, and what no longer hangs on a name."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines import ladder
from labkit.engines.config import EngineConfig, differences
from labkit.engines.ladder import Step
from labkit.errors import BadInput

POCKET = EngineConfig()
SGLANG = EngineConfig.from_dict({"engine": "sglang", "model": "org/model"})


def steps(text: str) -> tuple[Step, ...]:
    return tuple(Step.checked(s, "arms") for s in yaml.safe_load(text))


@pytest.mark.parametrize("config", [POCKET, SGLANG], ids=lambda c: c.engine)
def test_each_arm_of_the_published_ladder_changes_one_thing(config):
    arms = ladder.arms(config)
    assert [a.name for a in arms] == ["baseline", "kernels", "fp8-head", "mtp", "broken-head"]
    changed = [set(differences(a.config, b.config)) for a, b in zip(arms, arms[1:], strict=False)]
    head = {"fp8_lm_head"} | ({"enable_fp32_lm_head"} if config.engine == "sglang" else set())
    fault = {"faults"} if config.engine == "pocket" else {"env", "enable_fp32_lm_head"}
    assert changed == [{"moe_runner_backend"}, head, {"speculative"}, fault]
    assert [a.before for a in arms] == [None, "baseline", "kernels", "fp8-head", "mtp"]
    assert [a.expect for a in arms] == list(ladder.EXPECT)
    assert [a.name for a in ladder.choose(arms)] == ["baseline", "kernels", "fp8-head", "mtp"]


def test_an_attached_server_has_one_arm_as_it_runs():
    (arm,) = ladder.arms(EngineConfig.from_dict({"engine": "attach", "url": "http://h:1"}))
    assert arm.config.url == "http://h:1" and arm.before is None


def test_arms_branch_and_add_to_environment_and_arguments():
    arms = ladder.arms(
        SGLANG,
        steps(
            """
            - {name: plain, env: {A: 1, B: 2}, extra_args: [--page-size, 64]}
            - {name: fa3, expect: "same bytes, better kernels", set: {attention_backend: fa3}, env: {B: null}}
            - {name: kv8, from: plain, expect: fewer bytes, set: {kv_cache_dtype: fp8_e4m3}}
            - {name: compiled, from: plain, expect: "same bytes, better kernels", extra_args: [--enable-torch-compile]}
            - {name: eagle, expect: a > c, set: {speculative: {algorithm: EAGLE3, draft_model_path: /eagle}}}
            """
        ),
    )
    by = {a.name: a for a in arms}
    assert by["plain"].config.env == {"A": "1", "B": "2"} and by["fa3"].config.env == {"A": "1"}
    assert by["kv8"].config.attention_backend is None and by["kv8"].before == "plain"
    assert by["compiled"].config.extra_args == ("--page-size", "64", "--enable-torch-compile")
    assert by["eagle"].before == "compiled" and by["eagle"].config.speculative.numbers() == "3/1/4"
    assert by["kv8"].title == "kv_cache_dtype fp8_e4m3"
    assert ladder.first(arms, ladder.DRAFTING).name == "eagle"
    assert [(a.name, a.before) for a in ladder.choose(arms, ["eagle", "plain"])] == [
        ("plain", None),
        ("eagle", "plain"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[{name: a}, {name: a}]", r"arms\[1\].name: got 'a'"),
        ("[{name: a}, {name: b, from: c}]", r"arms\[1\].from: got 'c'; accepted: an arm above it: a"),
        ("[{name: a}, {name: b, expect: fewer bytes}]", r"arms\[1\].set: got None; accepted: a change"),
        ("[{name: a, expect: faster}]", "arms.expect: got 'faster'; accepted: one of nothing, same bytes"),
        ("[{name: a, set: {threads: 9}}]", r"arms\[0\].set.threads: got 9; accepted: a number from 1 to 2"),
        ("[{name: a, set: {load_format: dummy}}]", r"arms\[0\].set.load_format: .*pocket does not take it"),
        ("[{name: a, set: {env: {A: 1}}}]", r"arms\[0\].set.env: .*stands beside"),
        ("[{name: a, set: {threads: 2}, typo: 1}]", "arms.typo: got 1"),
        ('[{name: a, title: "{speculative.stepps}"}]', r"arms\[0\].title"),
        ("[{name: a b}]", "arms.name: got 'a b'"),
    ],
)
def test_what_does_not_fit_is_named(text, says):
    with pytest.raises(BadInput, match=says):
        ladder.arms(POCKET, steps(text))


def test_what_an_arm_sets_is_not_said_twice():
    """The engine section's own fields were silently overwritten once."""
    for field, value in (("fp8_lm_head", False), ("moe_runner_backend", "jit")):
        engine = EngineConfig.from_dict({"engine": "pocket", field: value if value else True})
        with pytest.raises(
            BadInput, match=rf"engine.{field}: got|a change: kernels already|a change: baseline already"
        ):
            ladder.arms(engine)
    engine = EngineConfig.from_dict({"engine": "pocket", "speculative": {"steps": 1, "topk": 1, "draft_tokens": 2}})
    with pytest.raises(BadInput, match="engine.speculative: got"):
        ladder.arms(engine, ladder.shipped("pocket"))


def test_draft_settings_of_the_engine_section_are_those_of_the_arm_that_drafts():
    spec = {"steps": 1, "topk": 1, "draft_tokens": 2}
    engine = EngineConfig.from_dict({"engine": "pocket", "speculative": spec, "simulate_acc_len": 1.5})
    plain, *_, mtp, _ = ladder.arms(engine)
    assert plain.config.speculative is None and plain.config.simulate_acc_len is None
    assert mtp.config.speculative.steps == 1 and mtp.config.simulate_acc_len == 1.5
    assert mtp.title == "+ MTP, draft steps: 1"


def test_words_for_arms_say_what_is_asked():
    assert {"baseline", "kernels", "humming", "jit", "fp8-head", "mtp"} <= set(ladder.words())
    assert ladder.asked("pocket", ["humming"]) == {"moe_runner_backend": "jit"}
    assert ladder.asked("sglang", ["humming"]) == {"moe_runner_backend": "humming"}
    assert ladder.asked("sglang", ["baseline"])["speculative"] is None
    with pytest.raises(BadInput, match="expect: got 'turbo'"):
        ladder.asked("pocket", ["turbo"])


names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@given(names, st.data())
def test_an_arm_is_its_base_and_its_change(chosen, data):
    """Whatever the names and branches: an arm differs from the one that it changes only in what it sets."""
    changes = {"threads": 2, "seed": 5, "fp8_lm_head": True, "moe_runner_backend": "jit", "context_length": 4096}
    made = []
    for i, name in enumerate(chosen):
        step = {"name": name, "set": {}}
        if i and data.draw(st.booleans()):
            step["from"] = data.draw(st.sampled_from(chosen[:i]))
        for field in data.draw(st.lists(st.sampled_from(sorted(changes)), max_size=2, unique=True)):
            step["set"][field] = changes[field]
        made.append(Step.checked(step))
    arms = {a.name: a for a in ladder.arms(POCKET, made)}
    for step in made:
        arm = arms[step.name]
        base = arms[arm.before].config if arm.before else POCKET
        assert set(differences(base, arm.config)) <= set(step.set)
        assert all(getattr(arm.config, k) == v for k, v in step.set.items())
        assert Step.checked(step.as_dict()) == step
