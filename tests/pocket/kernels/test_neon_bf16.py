"""The NEON variant with BF16 dot products, under the emulator: what test_neon.py asks of the other one, where pairs of
bfloat16 are multiplied."""

import numpy as np
import pytest

from .conftest import text_logits
from .test_neon import NEAR, arm, greedy, kernel, program, relative, test_dense  # noqa: F401 (fixtures, and a test)
from .test_speculation import JIT, spec

pytestmark = pytest.mark.arm


@pytest.fixture(scope="module")
def variant():
    return "neonbf16"


def test_logits(arm, engines, prompts):  # noqa: F811
    """Near those of FP8 weights on this machine, and the same bits in chunks."""
    ids, options = prompts[0][:9], {**JIT, "dense_dtype": "fp8"}
    got, want = arm(**options).logits(ids, 1), text_logits(engines(**options), ids, 1)
    assert relative(got, want) < NEAR and np.array_equal(got.argmax(-1), want.argmax(-1))
    assert np.array_equal(arm(**options).logits(ids, 4), got)


def test_speculation(arm, prompts):  # noqa: F811
    """Plain and NEXTN give the same tokens."""
    ids = prompts[12][:10]
    plain, _ = arm(**JIT, dense_dtype="fp8").answer(ids, greedy(12))
    drafted, facts = arm(**spec(3, 1, 4), dense_dtype="fp8").answer(ids, greedy(12))
    assert drafted == plain and facts.correct > 0
