import pytest

from labkit.errors import BadInput
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
