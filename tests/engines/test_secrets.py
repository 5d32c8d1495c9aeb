"""What hides secrets leaves everything else as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines.secrets import hide, hide_text

PLAIN = [
    "python -m labkit.pocket --host 127.0.0.1 --port 0 --random-seed 0",
    "SGLANG_SIMULATE_ACC_TOKEN_MODE=real PYTHONUNBUFFERED=1 python",
    "http://127.0.0.1:30000/v1 and a@example.com",
    '{"max_tokens": 3, "eos_token": "</s>", "api_key_env": "MY_KEY"}',
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays(text):
    assert hide_text(text) == text


LEAF = st.none() | st.booleans() | st.integers() | st.text(alphabet="abc xyz.", max_size=9)
TREE = st.recursive(
    LEAF, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.sampled_from(["a", "seed", "tokens"]), t)
)


@given(tree=TREE)
def test_trees_without_secrets_are_copied(tree):
    assert hide(tree) == tree


@given(secret=st.text(alphabet="abcdef0123456789", min_size=8, max_size=20), tree=TREE)
def test_a_named_secret_is_hidden_however_deep(secret, tree):
    assert secret not in str(hide({"x": [{"hf_token": secret, "b": ["--api-key", secret]}, tree]})["x"][0])
