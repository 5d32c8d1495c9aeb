"""Verdicts: is each option in effect, does it pay, and if not, what may be the cause. Checks say how they know."""

from labkit.verdicts.checks import Check, configuration, expected
from labkit.verdicts.observed import Observed, observe

__all__ = ["Check", "Observed", "configuration", "expected", "observe"]
