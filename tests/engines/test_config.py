"""One configuration for every engine: what is refused, what survives a round trip, and how each field is sent."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines import pocket as launch
from labkit.engines.adapter import ENGINES, adapter, evidence, flags, options
from labkit.engines.config import EngineConfig, Speculative
from labkit.engines.llamacpp import NEED_A_MODEL
from labkit.errors import BadInput
from labkit.pocket.options import FAULTS, Options

BASES = {
    "pocket": {"engine": "pocket"},
    "sglang": {"engine": "sglang", "model": "org/model"},
    "llamacpp": {"engine": "llamacpp", "model": "/far.gguf", "command_prefix": ["ssh", "far"]},  # its files are there
    "attach": {"engine": "attach", "url": "http://h:1"},
}
DRAFTS = {"steps": 3, "topk": 1, "draft_tokens": 4}


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
        ({"faults": ["nonsense"]}, "engine.faults"),
        ({"threads": 3}, "engine.threads"),
        ({"mem_fraction_static": 0.5}, "engine.mem_fraction_static"),
        ({"load_format": "dummy"}, "engine.load_format"),
        ({"engine": "sglang", "model": "m", "threads": 4}, "engine.threads"),
        ({"engine": "sglang", "model": "m", "moe_runner_backend": "jit"}, "engine.moe_runner_backend"),
        ({"engine": "attach", "url": "http://h:1", "fp8_lm_head": True}, "engine.fp8_lm_head"),
        ({"engine": "attach", "url": "http://h:1", "env": {"A": 1}}, "engine.env"),
        ({"speculative": {**DRAFTS, "draft_tokens": 9}}, "engine.speculative.draft_tokens"),
        ({"speculative": {"steps": 1, "topk": 2, "draft_tokens": 4}}, "engine.speculative.draft_tokens"),
        ({"speculative": {"steps": 9, "topk": 1, "draft_tokens": 10}}, "engine.speculative.steps"),
        ({"speculative": {"algorithm": "EAGLE3"}}, "engine.speculative.algorithm"),
        ({"speculative": {"draft_model_path": "/d"}}, "engine.speculative.draft_model_path"),
        ({**BASES["sglang"], "speculative": {"algorithm": "EAGLE3"}}, "engine.speculative.draft_model_path"),
        ({**BASES["sglang"], "speculative": {"algorithm": "NGRAM", **DRAFTS}}, "engine.speculative.steps"),
        ({"extra_args": ["--threads", "2"]}, r"engine.extra_args\[0\]"),
        ({**BASES["sglang"], "extra_args": ["--attention-backend=fa3"]}, r"engine.extra_args\[0\]"),
        ({"env": {"SGLANG_ENABLE_FP8_LM_HEAD": "1"}}, "engine.env.SGLANG_ENABLE_FP8_LM_HEAD"),
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
        {"extra_args": ["--hf-token", "sk-planted"]},
        {"url": "http://user:sk-planted@127.0.0.1:1", "engine": "attach"},
        {"api_key": "sk-planted"},
        {"env": {"MY_SECRET": ["sk-planted"]}},
    ],
)
def test_secrets_are_refused_without_being_shown(given_):
    with pytest.raises(BadInput) as refused:
        EngineConfig.from_dict(given_)
    assert "sk-planted" not in str(refused.value)


def test_names_that_only_look_secret_are_taken():
    got = EngineConfig.from_dict({"env": {"SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token", "N": 2}})
    assert got.env == {"N": "2", "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token"}


def test_a_zero_byte_reaches_no_process():
    with pytest.raises(BadInput, match="zero byte"):
        EngineConfig.from_dict({"env": {"A": "x\0y"}})


def test_yaml_and_command_line_types():
    got = EngineConfig.from_dict({"port": "30000", "fp8_lm_head": "true", "threads": 2.0})
    assert (got.port, got.fp8_lm_head, got.threads) == (30000, True, 2)
    got = EngineConfig.from_dict({**BASES["sglang"], "mem_fraction_static": "1e-1", "context_length": "1e4"})
    assert (got.mem_fraction_static, got.context_length) == (0.1, 10_000)


# -- what an adapter declares is what it honours, no more and no less


def _value(option, field):
    """Values of one declared field, inside the engine's range."""
    if option.choices:
        one = st.sampled_from(option.choices)
        return st.lists(one, min_size=1, max_size=2, unique=True).map(tuple) if field == "faults" else one
    if field in ("fp8_lm_head", "enable_fp32_lm_head"):
        return st.just(True)
    if option.low is not None:
        whole = float(option.low).is_integer() and field not in ("mem_fraction_static", "simulate_acc_len")
        return st.integers(int(option.low), int(option.high)) if whole else st.floats(option.low, option.high)
    return st.sampled_from(["512", "some/path", "fa3"])


def _given(engine, field, value):
    """A mapping that sets this field, with whatever has to stand beside it."""
    given_ = dict(BASES[engine])
    if engine == "llamacpp" and field.startswith("speculative."):
        spec = {"algorithm": "draft-simple", "draft_model_path": "/d.gguf", field.split(".")[1]: value}
        if spec["algorithm"] not in NEED_A_MODEL:
            del spec["draft_model_path"]
        return {**given_, "speculative": spec}
    if field.startswith("speculative."):
        name = field.split(".")[1]
        spec = {**DRAFTS, name: value}
        if name == "algorithm" and value == "NGRAM":
            spec = {"algorithm": "NGRAM", "draft_tokens": 4}
        elif name == "algorithm":
            spec["draft_model_path"] = "/draft" if engine == "sglang" else None
        elif name == "steps":
            spec["draft_tokens"] = value + 1
        elif name == "topk" and value > 1:
            spec["draft_tokens"] = 4
        elif name == "draft_tokens":
            spec = {"steps": 8, "topk": 4 if value != 9 else 1, "draft_tokens": value}
        return {**given_, "speculative": {k: v for k, v in spec.items() if v is not None}}
    if field == "simulate_acc_len":
        given_["speculative"] = {"algorithm": "ngram-mod"} if engine == "llamacpp" else dict(DRAFTS)
    return {**given_, field: list(value) if isinstance(value, tuple) else value}


DECLARED = [(engine, field) for engine in ENGINES for field in options(engine)]


@pytest.mark.parametrize(("engine", "field"), DECLARED)
@given(data=st.data())
def test_every_declared_field_is_sent_and_can_be_seen(engine, field, data):
    option = options(engine)[field]
    value = data.draw(_value(option, field))
    config = EngineConfig.from_dict(_given(engine, field, value))
    made = adapter(engine).command(config, 30000)
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        said = str(item) if not isinstance(item, float) else f"{item:g}"
        if not option.sent.startswith("--"):
            assert made.env[option.sent] == ("1" if item is True else said)
        elif item is True:
            assert option.sent in made.argv
        else:
            assert (option.sent, said) in zip(made.argv, made.argv[1:], strict=False)
    if option.seen:
        shown = {option.seen: option.shown_as.get(value, value) if isinstance(value, str) else value}
        (line,) = [e for e in evidence(config, shown) if e["field"] == field]
        proved = None if value == "auto" else True  # "auto" leaves the choice to the engine
        assert line["in_effect"] is proved and line["seen"] == shown[option.seen] and line["sent"]
        (other,) = [e for e in evidence(config, {option.seen: "something else"}) if e["field"] == field]
        assert other["in_effect"] is (None if value == "auto" else False)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_a_field_that_is_not_declared_is_refused_by_name(engine, data):
    known = {f.split(".")[0] for f in options(engine)}
    samples = {
        "moe_runner_backend": "x",
        "attention_backend": "fa3",
        "kv_cache_dtype": "fp8_e4m3",
        "dense_dtype": "bf16",
        "fp8_lm_head": True,
        "enable_fp32_lm_head": True,
        "threads": 2,
        "context_length": 4096,
        "seed": 7,
        "mem_fraction_static": 0.5,
        "load_format": "dummy",
        "kernel_variant": "avx2",
        "kernel_cache": "/c",
        "faults": ["bare-head"],
        "speculative": DRAFTS,
    }
    missing = sorted(set(samples) - known)
    if not missing:
        return
    name = data.draw(st.sampled_from(missing))
    with pytest.raises(BadInput, match=f"^engine.{name}: got .*{engine} does not take it"):
        EngineConfig.from_dict({**BASES[engine], name: samples[name]})


@pytest.mark.parametrize("engine", ["pocket", "sglang"])
@pytest.mark.parametrize("field", ["threads", "seed", "context_length", "speculative.steps", "speculative.topk"])
def test_a_value_out_of_the_engines_range_is_refused(engine, field):
    option = options(engine).get(field)
    if option is None:
        pytest.skip("refused by name")
    with pytest.raises(BadInput, match=field.replace(".", r"\.")):
        EngineConfig.from_dict(_given(engine, field, int(option.high) + 1))


@st.composite
def configs(draw):
    engine = draw(st.sampled_from(["pocket", "sglang"]))
    names = [f for f in options(engine) if not f.startswith("speculative.") and f not in ("model", "simulate_acc_len")]
    fields = draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
    if "fp8_lm_head" in fields and "enable_fp32_lm_head" in fields:
        fields.remove("enable_fp32_lm_head")
    out = dict(BASES[engine])
    for field in fields:
        out |= _given(engine, field, draw(_value(options(engine)[field], field)))
    if draw(st.booleans()):
        steps = draw(st.integers(1, 8))
        out["speculative"] = {"steps": steps, "topk": 1, "draft_tokens": steps + 1}
    if draw(st.booleans()):
        out["env"] = draw(st.dictionaries(st.sampled_from(["A", "B_C"]), st.text("xyz ;$", min_size=1, max_size=4)))
        out["extra_args"] = draw(st.lists(st.sampled_from(["--x", "1", "--flag"]), max_size=3))
    out["port"] = draw(st.integers(0, 65535))
    return EngineConfig.from_dict(out)


@given(configs())
def test_round_trip_through_json(config):
    for made in (config.as_dict(), config.given()):
        again = EngineConfig.from_dict(json.loads(json.dumps(made)))
        assert again == config and again.digest() == config.digest()


@given(configs(), configs())
def test_the_digest_changes_exactly_when_something_that_is_sent_changes(a, b):
    same = a.engine == b.engine and flags(a) == flags(b) and (a.env, a.extra_args) == (b.env, b.extra_args)
    assert (a.digest() == b.digest()) == same


def test_where_a_server_listens_does_not_change_the_digest():
    config = EngineConfig()
    moved = config.replace(port=1, host="0.0.0.0", api_key_env="K", command_prefix=["ssh", "h"])
    assert moved.digest() == config.digest()
    assert config.replace(seed=1).digest() != config.digest()


# -- the pocket adapter, held against the engine's own flag parser


def test_the_pocket_engine_understands_every_field():
    given_ = {
        "engine": "pocket",
        "moe_runner_backend": "jit",
        "dense_dtype": "bf16",
        "fp8_lm_head": True,
        "threads": 2,
        "speculative": {"steps": 2, "topk": 2, "draft_tokens": 5, "token_map": 512},
        "simulate_acc_len": 2.5,
        "context_length": 4096,
        "kernel_variant": "portable",
        "kernel_cache": "/c",
        "seed": 5,
        "faults": FAULTS[:2],
    }
    made = launch.command(EngineConfig.from_dict(given_), 0)
    flags_ = made.argv[made.argv.index("labkit.pocket") + 1 :]
    assert flags_[:4] == ["--host", "127.0.0.1", "--port", "0"]
    options_ = Options.from_flags(flags_[4:], made.env)
    assert (options_.moe_runner_backend, options_.dense_dtype, options_.fp8_lm_head) == ("jit", "bf16", True)
    assert (options_.threads, options_.random_seed, options_.context_length) == (2, 5, 4096)
    assert (options_.kernel_variant, options_.kernel_cache) == ("portable", "/c")
    got = (options_.speculative_num_steps, options_.speculative_eagle_topk, options_.speculative_num_draft_tokens)
    assert got == (2, 2, 5) and options_.speculative_token_map == "512"
    assert options_.simulate_acc_len == 2.5 and options_.faults == set(FAULTS[:2])


def test_sglang_gets_its_drafts_from_the_model_unless_told_otherwise():
    def argv(**spec):
        config = EngineConfig.from_dict({**BASES["sglang"], "speculative": {**DRAFTS, **spec}})
        return adapter("sglang").command(config, 1).argv

    own = argv()
    assert own[own.index("--speculative-draft-model-path") + 1] == "org/model"
    eagle = argv(algorithm="EAGLE3", draft_model_path="/eagle")
    assert eagle.count("--speculative-draft-model-path") == 1 and "/eagle" in eagle


def test_a_fault_that_rewrites_draft_tokens_may_be_asked_for_too_many():
    spec = {**DRAFTS, "draft_tokens": 6}
    assert (
        EngineConfig.from_dict({"speculative": spec, "faults": ["rewrite-draft-tokens"]}).speculative.draft_tokens == 6
    )
    assert Speculative().numbers() == "3/1/4"


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
