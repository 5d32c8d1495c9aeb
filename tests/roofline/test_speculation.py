import random

import pytest

from labkit.errors import BadInput
from labkit.evidence import Tier, reported
from labkit.roofline import speculation as s


def test_expected_distinct_experts():
    assert s.expected_distinct_experts(512, 8, 4) == pytest.approx(31.258, abs=1e-3)
    assert s.expected_distinct_experts(512, 8, 1) == 8
    assert s.expected_distinct_experts(4, 4, 3) == 4
    assert s.expected_distinct_experts(5, 1, 1) == pytest.approx(1)
    for n, k, m in ((8, 0, 1), (8, 9, 1), (8, 2, 0)):
        with pytest.raises(BadInput):
            s.expected_distinct_experts(n, k, m)


def test_the_expectation_is_that_of_independent_draws():
    rng, n, k, m = random.Random(7), 24, 8, 4
    drawn = [len({e for _ in range(m) for e in rng.sample(range(n), k)}) for _ in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(s.expected_distinct_experts(n, k, m), rel=0.01)


def test_the_law():
    assert s.speedup(3.9, 2.26) == pytest.approx(1.7257, abs=1e-4)
    assert s.predicted_tpot(22.76, 3.9, 2.26) == pytest.approx(13.189, abs=1e-3)
    assert s.c_from_times(9.72, 3.9, 22.76) == pytest.approx(1.6656, abs=1e-4)
    assert s.c_at_bandwidth(121.1e9, 9.72e-3, 3.9, 2.952e9) == pytest.approx(1.555, abs=1e-3)
    assert s.fallback_tpot(22.76, 2.26) == pytest.approx(51.4376)
    # the time measured under a law with c gives c back
    assert s.c_from_times(s.predicted_tpot(20, 3, 1.7), 3, 20) == pytest.approx(1.7)


def test_evidence_goes_through():
    tpot, c = reported(22.76, "ms", "blog"), reported(2.26, "1", "blog")
    for got in (
        s.fallback_tpot(tpot, c),
        s.speedup(reported(3.9, "tok", "blog"), c),
        s.predicted_tpot(tpot, 3.9, c),
        s.c_from_times(tpot, 3.9, tpot),
        s.c_at_bandwidth(reported(1, "GB/s", "b"), tpot, 1, reported(1, "GB", "b")),
    ):
        assert got.tier is Tier.DERIVED
    assert s.fallback_tpot(tpot, c).to("ms").value == pytest.approx(51.4376)
    with pytest.raises(BadInput, match="tpot_plain"):
        s.fallback_tpot(reported(0, "ms", "blog"), c)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: s.speedup(x, 1),
        lambda x: s.speedup(1, x),
        lambda x: s.predicted_tpot(x, 1, 1),
        lambda x: s.predicted_tpot(1, x, 1),
        lambda x: s.predicted_tpot(1, 1, x),
        lambda x: s.c_from_times(x, 1, 1),
        lambda x: s.c_from_times(1, x, 1),
        lambda x: s.c_from_times(1, 1, x),
        lambda x: s.c_at_bandwidth(x, 1, 1, 1),
        lambda x: s.c_at_bandwidth(1, x, 1, 1),
        lambda x: s.c_at_bandwidth(1, 1, x, 1),
        lambda x: s.c_at_bandwidth(1, 1, 1, x),
    ],
)
@pytest.mark.parametrize("x", [0, -1, float("nan")])
def test_only_positive_numbers(call, x):
    with pytest.raises(BadInput, match="positive"):
        call(x)


def test_names_in_errors():
    with pytest.raises(BadInput, match="^a: got 0; accepted: a positive number"):
        s.speedup(0, 1)
    with pytest.raises(BadInput, match="^c: "):
        s.speedup(1, 0)


def test_accept_lengths():
    assert s.accept_length([0.9, 0.8, 0.7]) == pytest.approx(3.4)
    assert s.accept_length([]) == 1
    assert s.accept_length([1.0, 1.0, 0.0]) == 3
    for bad in ([1.1], [-0.1], [0.5, 0.6]):
        with pytest.raises(BadInput, match="by_position"):
            s.accept_length(bad)
