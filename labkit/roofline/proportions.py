"""Proportions as counts: what an accuracy difference of one question can and cannot say."""

from math import comb, erfc, inf, sqrt

from labkit.errors import BadInput

Z95 = 1.959963984540054
Z80 = 0.8416212335729143  # power 80%


def correct_of(percent: float, questions: int) -> int:
    """How many right answers a rounded percentage stands for."""
    return round(percent / 100 * questions)


def wilson(correct: int, questions: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a proportion (shares, not percent)."""
    if not 0 <= correct <= questions or questions < 1:
        raise BadInput("correct", correct, f"0 to the number of questions ({questions})")
    share, square = correct / questions, z * z
    centre = (share + square / (2 * questions)) / (1 + square / questions)
    half = z / (1 + square / questions) * sqrt(share * (1 - share) / questions + square / (4 * questions**2))
    # At 0 and at 1 the interval ends exactly there; rounding may put it a hair inside.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Two-sided exact McNemar p: the binomial chance of a split of the discordant pairs at least this uneven."""
    if only_a < 0 or only_b < 0:
        raise BadInput("discordant pairs", (only_a, only_b), "two counts")
    n, least = only_a + only_b, min(only_a, only_b)
    tail = sum(comb(n, i) for i in range(least + 1)) / 2**n
    return min(1.0, 2 * tail)


def paired_difference(only_a: int, only_b: int, questions: int, z: float = Z95) -> tuple[float, float, float]:
    """(difference a - b, low, high) of two paired accuracies as shares, by the normal interval for pairs."""
    if questions < only_a + only_b or questions < 1:
        raise BadInput("questions", questions, f"at least the discordant pairs ({only_a + only_b})")
    difference = (only_a - only_b) / questions
    half = z * sqrt(only_a + only_b - (only_a - only_b) ** 2 / questions) / questions
    return difference, difference - half, difference + half


def non_inferiority_p(only_a: int, only_b: int, questions: int, margin: float) -> float:
    """One-sided p of "b is worse than a by `margin` or more" (a share, e.g. 0.01): small says that b is not inferior.

    Tango's score test for paired proportions (Statistics in Medicine 17, 1998), which holds its level where few pairs
    disagree; the normal interval for pairs does not.
    """
    if not 0 < margin < 1:
        raise BadInput("margin", margin, "a share above 0 and below 1, e.g. 0.01 for one point")
    if questions < only_a + only_b or questions < 1:
        raise BadInput("questions", questions, f"at least the discordant pairs ({only_a + only_b})")
    n, shift = questions, -margin
    b = -only_b - only_a + (2 * n - only_b + only_a) * shift
    c = -only_a * shift * (1 - shift)
    share = (sqrt(b * b - 8 * n * c) - b) / (4 * n)
    spread = n * (2 * share + shift * (1 - shift))
    gap = only_b - only_a - n * shift
    score = gap / sqrt(spread) if spread > 0 else inf if gap > 0 else -inf
    return erfc(score / sqrt(2)) / 2


def smallest_detectable(discordant: int, questions: int) -> float:
    """The true difference of two paired accuracies (a share) that this many questions would show with 80% power at the
    two-sided 5% level, given how many pairs disagreed (Connor, Biometrics 43, 1987).

    Without a discordant pair three are assumed: that many could have been missed at 95% confidence.
    """
    if not 0 <= discordant <= questions or questions < 1:
        raise BadInput("discordant", discordant, f"0 to the number of questions ({questions})")
    share = max(discordant, min(3, questions)) / questions
    low, high = 0.0, 1.0
    for _ in range(60):  # bisection: the needed number of questions falls as the difference grows
        middle = (low + high) / 2
        pairs = max(share, middle)  # a difference needs at least that many discordant pairs
        needed = (Z95 * sqrt(pairs) + Z80 * sqrt(max(0.0, pairs - middle**2))) ** 2
        low, high = (low, middle) if needed <= questions * middle**2 else (middle, high)
    return high
