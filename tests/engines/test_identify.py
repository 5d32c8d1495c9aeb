"""Who is serving is established by several signs; one field, or the absence of others, is not enough."""

import pytest

from labkit.engines.identify import identify

SGLANG = {
    "version": "0.5.23",
    "model_path": "m",
    "tokenizer_path": "m",
    "served_model_name": "m",
    "moe_runner_backend": "auto",
    "speculative_algorithm": None,
    "internal_states": [{}],
}
POCKET = {"engine": "pocket", "version": "1", "weights_sha256": "ab", "kernel_variant": "avx2"}


@pytest.mark.parametrize("info, engine", [(SGLANG, "sglang"), (POCKET, "pocket")])
def test_engines_that_describe_themselves_in_full(info, engine):
    found = identify(info)
    assert (found.engine, found.known, found.version) == (engine, True, info["version"])
    assert len(found.signs) >= 2


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"version": "0.26.0"},
        {"version": "0.5.23"},  # even SGLang's own number is one sign
        {"version": "0.5.23", "model_path": "m", "internal_states": []},
        {"engine": "pocket", "version": "1"},
        {"engine": "vllm", **SGLANG},
        {k: v for k, v in SGLANG.items() if k != "internal_states"},
    ],
)
def test_too_little_is_unknown_and_says_why(info):
    found = identify(info)
    assert not found.known and found.engine == "unknown" and found.open
