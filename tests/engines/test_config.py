"""One configuration for every engine: what is refused, what survives a round trip, what the rungs change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines import ladder
from labkit.engines import pocket as launch
from labkit.engines.config import ENGINES, FAULTS, EngineConfig, Speculative, differences
from labkit.errors import BadInput
from labkit.pocket.options import Options

SGLANG = EngineConfig.from_dict({"engine": "sglang", "model": "org/model"})


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"engine": "vllm"}, "engine.engine"),
        ({"engien": "pocket"}, "engine.engien"),
        ({"port": 70000}, "engine.port"),
        ({"port": True}, "engine.port"),
        ({"port": "12a"}, "engine.port"),
        ({"threads": 1.5}, "engine.threads"),
        ({"fp8_lm_head": 1}, "engine.fp8_lm_head"),
        ({"moe_runner_backend": "humming"}, "engine.moe_runner_backend"),
        ({"engine": "sglang"}, "engine.model"),
        ({"engine": "attach"}, "engine.url"),
        ({"engine": "attach", "url": "http://user:pw@host:1"}, "engine.url"),
        ({"speculative": {"steps": 3}}, "engine.speculative.topk"),
        ({"speculative": {"steps": 0, "topk": 1, "draft_tokens": 4}}, "engine.speculative.steps"),
        ({"simulate_acc_len": 2.0}, "engine.simulate_acc_len"),
        ({"fp8_lm_head": True, "enable_fp32_lm_head": True}, "engine.enable_fp32_lm_head"),
        ({"engine": "sglang", "model": "m", "faults": ["bare-head"]}, "engine.faults"),
        ({"faults": ["nonsense"]}, r"engine.faults\[0\]"),
        ({"faults": "bare-head"}, "engine.faults"),
        ({"extra_args": "--a b"}, "engine.extra_args"),
        ({"command_prefix": ["ssh", ""]}, r"engine.command_prefix\[1\]"),
        ({"env": {"A B": "1"}}, "engine.env.A B"),
        ({"mem_fraction_static": float("nan")}, "engine.mem_fraction_static"),
        ([1], "engine"),
    ],
)
def test_bad_fields_are_named(given_, field):
    with pytest.raises(BadInput, match=f"^{field}: got"):
        EngineConfig.from_dict(given_)


@pytest.mark.parametrize(
    "given_",
    [
        {"env": {"HF_TOKEN": "sk-planted"}},
        {"env": {"OPENAI_API_KEY": "sk-planted"}},
        {"api_key_env": "sk-planted"},
        {"extra_args": ["--api-key=sk-planted"]},
        {"extra_args": ["--admin-api-key", "sk-planted"]},
    ],
)
def test_secrets_are_refused_without_being_shown(given_):
    with pytest.raises(BadInput) as refused:
        EngineConfig.from_dict(given_)
    assert "sk-planted" not in str(refused.value)


def test_names_that_only_look_secret_are_taken():
    got = EngineConfig.from_dict({"env": {"SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token", "N": 2}})
    assert got.env == (("N", "2"), ("SGLANG_SIMULATE_ACC_TOKEN_MODE", "real-draft-token"))


def test_yaml_and_command_line_types():
    given_ = {"port": "30000", "mem_fraction_static": "1e-1", "fp8_lm_head": "true", "threads": 2.0}
    got = EngineConfig.from_dict(given_)
    assert (got.port, got.mem_fraction_static, got.fp8_lm_head, got.threads) == (30000, 0.1, True, 2)


drafts = st.integers(1, 7).map(lambda s: {"steps": s, "topk": 1, "draft_tokens": s + 1})
configs = st.fixed_dictionaries(
    {"engine": st.sampled_from([e for e in ENGINES if e != "attach"]), "model": st.sampled_from(["pocket", "/m"])},
    optional={
        "port": st.integers(0, 65535),
        "threads": st.integers(1, 8),
        "seed": st.integers(0, 2**40),
        "fp8_lm_head": st.booleans(),
        "context_length": st.none() | st.integers(64, 10**6),
        "speculative": st.none() | drafts,
        "extra_args": st.lists(st.sampled_from(["--x", "1", "--flag"]), max_size=3),
        "env": st.dictionaries(st.sampled_from(["A", "B_C"]), st.text("xyz ;$", min_size=1, max_size=4)),
    },
)


@given(configs)
def test_round_trip_through_json(given_):
    config = EngineConfig.from_dict(given_)
    again = EngineConfig.from_dict(json.loads(json.dumps(config.as_dict())))
    assert again == config and again.digest() == config.digest()


@given(configs, configs)
def test_digest_tells_configurations_apart(one, two):
    a, b = EngineConfig.from_dict(one), EngineConfig.from_dict(two)
    same = not set(differences(a, b)) - {"host", "port", "api_key_env", "command_prefix"}
    assert (a.digest() == b.digest()) == same


def test_where_a_server_listens_does_not_change_the_digest():
    config = EngineConfig()
    assert (
        config.replace(port=1, host="0.0.0.0", api_key_env="K", command_prefix=["ssh", "h"]).digest() == config.digest()
    )
    assert config.replace(seed=1).digest() != config.digest()


# -- the rungs


@pytest.mark.parametrize("config", [EngineConfig(), SGLANG])
def test_each_rung_changes_one_thing(config):
    rungs = [ladder.rung(config, name) for name in ladder.RUNGS]
    changed = [set(differences(a, b)) for a, b in zip(rungs, rungs[1:], strict=False)]
    head = {"fp8_lm_head"} | ({"enable_fp32_lm_head"} if config.engine == "sglang" else set())
    assert changed == [{"moe_runner_backend"}, head, {"speculative"}]


def test_rungs_per_engine():
    assert ladder.rung(EngineConfig(), "kernels").moe_runner_backend == "jit"
    base = ladder.rung(SGLANG, "baseline")
    assert (base.moe_runner_backend, base.enable_fp32_lm_head) == ("flashinfer_mxfp4", True)
    assert ladder.rung(SGLANG, "humming") == ladder.rung(SGLANG, "kernels")
    own = SGLANG.replace(speculative=Speculative(5, 1, 6), simulate_acc_len=2.68)
    assert ladder.rung(own, "mtp").speculative == Speculative(5, 1, 6)
    assert ladder.rung(own, "mtp").simulate_acc_len == 2.68
    assert ladder.rung(own, "fp8-head").speculative is None


def test_rungs_refused():
    with pytest.raises(BadInput, match="rung"):
        ladder.rung(EngineConfig(), "turbo")
    attached = EngineConfig.from_dict({"engine": "attach", "url": "http://h:1"})
    with pytest.raises(BadInput, match="attached"):
        ladder.rung(attached, "baseline")


# -- the pocket adapter, held against the engine's own flag parser


@pytest.mark.parametrize("rung", ladder.RUNGS)
def test_the_pocket_engine_understands_every_rung(rung):
    config = ladder.rung(EngineConfig.from_dict({"threads": 2, "seed": 5, "context_length": 4096}), rung)
    made = launch.command(config, 0)
    flags = made.argv[made.argv.index("labkit.pocket") + 1 :]
    assert flags[:4] == ["--host", "127.0.0.1", "--port", "0"]
    options = Options.from_flags(flags[4:], made.env)
    assert options.moe_runner_backend == config.moe_runner_backend
    assert options.fp8_lm_head == config.fp8_lm_head
    assert (options.threads, options.random_seed, options.context_length) == (2, 5, 4096)
    spec = config.speculative
    got = (options.speculative_num_steps, options.speculative_eagle_topk, options.speculative_num_draft_tokens)
    assert got == ((spec.steps, spec.topk, spec.draft_tokens) if spec else (None, None, None))


def test_the_pocket_engine_takes_faults_and_a_simulated_length():
    config = EngineConfig().replace(speculative=Speculative(), simulate_acc_len=2.5, faults=list(FAULTS[:2]))
    made = launch.command(config, 0)
    options = Options.from_flags(made.argv[made.argv.index("0") + 1 :], made.env)
    assert options.simulate_acc_len == 2.5 and options.faults == set(FAULTS[:2])


def test_the_key_goes_to_the_pocket_engine_by_name():
    made = launch.command(EngineConfig().replace(api_key_env="MY_KEY"), 0)
    assert made.argv[made.argv.index("--api-key-env") + 1] == "MY_KEY" and made.key_flag is None


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("pocket: compiler: got None; accepted: gcc, clang", "compiler: got None"),
        ("MemoryError", "not enough memory"),
        ("all is well", None),
    ],
)
def test_known_failures(log, says):
    found = launch.explain(log)
    assert found is None if says is None else says in found
