"""Options: SGLang's flag names and rules, and every refusal names its field."""

import pytest

from labkit.errors import BadInput
from labkit.pocket.options import Options

SPEC = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]


def flags(*argv, **env):
    return Options.from_flags([*argv], env)


def test_defaults():
    o = flags()
    assert (o.moe_runner_backend, o.fp8_lm_head, o.speculative, o.threads, o.dense_dtype) == (
        "generic",
        False,
        False,
        1,
        "auto",
    )


def test_all_flags():
    o = flags(
        "--moe-runner-backend",
        "jit",
        *SPEC,
        "--speculative-num-draft-tokens",
        "4",
        "--threads",
        "2",
        "--context-length",
        "4096",
        SGLANG_ENABLE_FP8_LM_HEAD="1",
        SGLANG_SIMULATE_ACC_LEN="2.5",
    )
    assert o.fp8_lm_head and o.simulate_acc_len == 2.5 and o.speculative_num_draft_tokens == 4 and o.threads == 2


def test_nextn_alone_takes_the_published_numbers():
    o = flags("--speculative-algorithm", "NEXTN")
    assert (o.speculative_num_steps, o.speculative_eagle_topk, o.speculative_num_draft_tokens) == (3, 1, 4)


@pytest.mark.parametrize(
    ("argv", "env", "field"),
    [
        (["--moe-runner-backend", "marlin"], {}, "moe_runner_backend"),
        (["--threads", "3"], {}, "threads"),
        (["--speculative-num-steps", "3"], {}, "speculative_algorithm"),
        (["--speculative-algorithm", "EAGLE3"], {}, "speculative_algorithm"),
        (SPEC, {}, "speculative_num_steps, speculative_eagle_topk, speculative_num_draft_tokens"),
        ([*SPEC, "--speculative-num-draft-tokens", "6"], {}, "speculative_num_draft_tokens"),
        (["--enable-fp32-lm-head"], {"SGLANG_ENABLE_FP8_LM_HEAD": "1"}, "enable_fp32_lm_head"),
        ([], {"SGLANG_ENABLE_FP8_LM_HEAD": "yes"}, "SGLANG_ENABLE_FP8_LM_HEAD"),
        ([], {"SGLANG_SIMULATE_ACC_LEN": "2"}, "simulate_acc_len"),
        (["--speculative-algorithm", "NEXTN"], {"SGLANG_SIMULATE_ACC_LEN": "4.5"}, "simulate_acc_len"),
        ([], {"SGLANG_SIMULATE_ACC_LEN": "many"}, "SGLANG_SIMULATE_ACC_LEN"),
        (["--fault", "gremlins"], {}, "faults"),
        (["--kernel-variant", "sse"], {}, "kernel_variant"),
        (["--context-length", "8"], {}, "context_length"),
    ],
)
def test_refusals_name_the_field(argv, env, field):
    with pytest.raises(BadInput) as caught:
        Options.from_flags(argv, env)
    assert caught.value.field == field


def test_tree_larger_than_what_is_proposed():
    with pytest.raises(BadInput, match="at most 3"):
        Options(
            speculative_algorithm="NEXTN",
            speculative_num_steps=1,
            speculative_eagle_topk=2,
            speculative_num_draft_tokens=4,
        )


def test_faults_act_only_when_asked():
    argv = [*SPEC, "--speculative-num-draft-tokens", "6"]
    assert flags(*argv, "--fault", "rewrite-draft-tokens").speculative_num_draft_tokens == 4
    assert not flags("--fault", "ignore-env", SGLANG_ENABLE_FP8_LM_HEAD="1").fp8_lm_head
    jit = flags("--moe-runner-backend", "jit", "--fault", "moe-fallback")
    assert jit.moe_runner_backend == "jit" and not jit.runs_jit


@pytest.mark.parametrize("text", ["nothing-here.json", "16", "[1, 2]"])
def test_token_maps_that_are_none(text, tmp_path):
    from labkit.pocket.layout import draft_ids

    if text.startswith("["):
        path = tmp_path / "map.json"
        path.write_text(text)
        text = str(path)
    with pytest.raises(BadInput, match="speculative_token_map"):
        draft_ids(Options(speculative_algorithm="NEXTN", speculative_token_map=text), 6144)
