"""Nothing key-like gets from a server's description or a log into a record."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines.server_info import allowed, scrub

KEY = "sk-planted-7f3a"


def test_only_named_fields_survive_and_no_key():
    document = {
        "version": "0.5.23",
        "moe_runner_backend": "humming",
        "api_key": KEY,
        "admin_api_key": KEY + "-admin",
        "model_path": f"/models/{KEY}/x",
        "ssl_keyfile_password": "pw",
        "unknown_field": 1,
        "hf_token": "hf_x",
        "launch_command": f"python -m sglang.launch_server --api-key {KEY} --admin-api-key={KEY}-admin --port 1",
        "internal_states": [{"avg_spec_accept_length": 2.5, "api_key": KEY, "last_gen_throughput": 10.0, "other": KEY}],
        "speculative_num_steps": 3,
    }
    kept = allowed(document)
    assert KEY not in json.dumps(kept)
    assert set(kept) == {
        "version",
        "moe_runner_backend",
        "model_path",
        "speculative_num_steps",
        "internal_states",
        "launch_command",
    }
    assert kept["internal_states"] == [{"avg_spec_accept_length": 2.5, "last_gen_throughput": 10.0}]
    assert kept["launch_command"].endswith("--port 1")


NAMES = st.sampled_from(["api_key", "admin_api_key", "HF_TOKEN", "password", "client_secret", "credentials"])
NESTED = st.recursive(
    st.text("abc", max_size=3) | st.integers() | st.just(f"around {KEY} it"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "cpu", "secret"]), inner),
    max_leaves=8,
)


@given(NAMES, NESTED, st.sampled_from(["cpu", "kernels", "replica_reason", "internal_states", "launch_command"]))
def test_a_planted_key_survives_nowhere(name, value, field):
    assert KEY not in json.dumps(allowed({name: KEY, field: value, "version": "1"}))


@pytest.mark.parametrize(
    "line",
    [
        f"server_args=ServerArgs(model_path='m', api_key='{KEY}', admin_api_key='{KEY}', port=1)",
        f'{{"api_key": "{KEY}"}}',
        f"launch: --api-key {KEY} --port 1",
        f"Authorization: Bearer {KEY}",
    ],
)
def test_log_lines(line):
    assert KEY not in scrub(line) and "(hidden)" in scrub(line)


def test_harmless_lines_stay():
    line = "Decode batch, #full token: 1216, accept len: 3.95, api_key=None, tokens=12"
    assert scrub(line) == line
