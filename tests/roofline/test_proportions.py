import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.roofline import proportions
from labkit.roofline.proportions import correct_of, mcnemar_exact, paired_difference, wilson


def test_counts():
    assert (correct_of(96.89, 1319), correct_of(96.82, 1319)) == (1278, 1277)


def test_wilson():
    low, high = wilson(1278, 1319)
    assert (low, high) == (pytest.approx(0.958103, abs=1e-6), pytest.approx(0.977005, abs=1e-6))
    assert wilson(0, 10)[0] == pytest.approx(0, abs=1e-12) and wilson(10, 10)[1] == pytest.approx(1, abs=1e-12)
    assert wilson(5, 10, z=1) == (pytest.approx(0.349245, abs=1e-6), pytest.approx(0.650755, abs=1e-6))
    assert wilson(1, 1) == (pytest.approx(0.206549, abs=1e-6), pytest.approx(1))
    for bad in ((-1, 10), (11, 10), (0, 0)):
        with pytest.raises(BadInput, match="correct"):
            wilson(*bad)


def test_mcnemar():
    assert mcnemar_exact(14, 13) == 1 and mcnemar_exact(0, 0) == 1
    assert mcnemar_exact(1, 9) == mcnemar_exact(9, 1) == pytest.approx(2 * 11 / 1024)
    assert mcnemar_exact(0, 5) == 2 / 32
    for bad in ((-1, 2), (2, -1)):
        with pytest.raises(BadInput, match="discordant"):
            mcnemar_exact(*bad)


def test_paired_difference():
    d, low, high = paired_difference(14, 13, 1319)
    assert (d, low, high) == (
        pytest.approx(0.000758, abs=1e-6),
        pytest.approx(-0.006963, abs=1e-6),
        pytest.approx(0.008479, abs=1e-6),
    )
    assert paired_difference(3, 1, 10, z=1) == (
        pytest.approx(0.2),
        pytest.approx(0.2 - 0.6**0.5 * 6**0.5 / 10),
        pytest.approx(0.2 + 0.6**0.5 * 6**0.5 / 10),
    )
    assert paired_difference(5, 5, 10)[0] == 0
    assert paired_difference(1, 0, 1)[0] == 1
    for bad in ((5, 5, 9), (0, 0, 0)):
        with pytest.raises(BadInput, match="questions"):
            paired_difference(*bad)


def test_the_published_accuracies_say_little():
    # 1264 both right, 14 and 13 one only, 28 both wrong, over 1319 questions.
    assert proportions.mcnemar_exact(14, 13) == 1.0
    assert 0.010 < proportions.smallest_detectable(27, 1319) < 0.012
    assert (
        proportions.non_inferiority_p(14, 13, 1319, 0.01) < 0.025 < proportions.non_inferiority_p(14, 13, 1319, 0.005)
    )


def test_non_inferiority_holds_its_level():
    """Pairs drawn at exactly the margin: b is called not inferior in about 5% of the draws at the 5% level."""
    rng = np.random.default_rng(1)
    n, margin, shared = 400, 0.03, 0.04
    draws = rng.multinomial(n, [shared + margin, shared, 1 - 2 * shared - margin], size=4000)
    called = np.mean([proportions.non_inferiority_p(int(a), int(b), n, margin) < 0.05 for a, b, _ in draws])
    assert 0.035 < called < 0.065


def test_the_smallest_detectable_difference_is_detected_in_four_of_five_draws():
    rng = np.random.default_rng(2)
    n, discordant = 1319, 60
    difference, share = proportions.smallest_detectable(discordant, n), discordant / n
    draws = rng.multinomial(n, [(share + difference) / 2, (share - difference) / 2, 1 - share], size=2000)
    found = np.mean([proportions.mcnemar_exact(int(a), int(b)) < 0.05 for a, b, _ in draws])
    assert 0.70 < found < 0.86  # the exact test is a little stricter than the formula's normal one


@given(st.integers(0, 50), st.integers(0, 50), st.integers(100, 2000), st.floats(0.001, 0.3))
def test_non_inferiority_is_a_probability_and_falls_with_the_margin(a, b, n, margin):
    p = proportions.non_inferiority_p(a, b, n, margin)
    assert 0 <= p <= 1
    assert proportions.non_inferiority_p(a, b, n, min(0.9, margin * 1.5)) <= p + 1e-12


@given(st.integers(0, 100), st.integers(100, 3000))
def test_more_questions_detect_less(discordant, n):
    assert proportions.smallest_detectable(discordant, 2 * n) <= proportions.smallest_detectable(discordant, n)


@pytest.mark.parametrize("margin", [0, -0.1, 1, 2])
def test_bad_margins(margin):
    with pytest.raises(BadInput, match="margin"):
        proportions.non_inferiority_p(1, 1, 100, margin)


@given(st.integers(1, 5000), st.data())
def test_wilson_holds_the_share_itself_and_stays_a_share(questions, data):
    correct = data.draw(st.sampled_from([0, questions]) | st.integers(0, questions))
    low, high = wilson(correct, questions)
    assert 0 <= low <= correct / questions <= high <= 1
