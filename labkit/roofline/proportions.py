"""Proportions as counts: what an accuracy difference of one question can and cannot say."""

from math import comb, sqrt

from labkit.errors import BadInput

Z95 = 1.959963984540054


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
    return centre - half, centre + half


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
