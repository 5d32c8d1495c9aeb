"""A comparison of two arms with numbers of one's own."""

from labkit.measure.estimates import Comparison
from labkit.measure.stats import Interval


def compared(ratio, low, high, *, accept=None, c=None, apart=False):
    """The arm after against the one before: ratio of TPOT with its interval, and for a draft its a and c."""
    drafts = [None if x is None else Interval(x, None, None, 3, 9) for x in (c, accept)]
    return Comparison(Interval(ratio, low, high, 3, 9), Interval(1.0, None, None, 3, 9), *drafts, apart)
