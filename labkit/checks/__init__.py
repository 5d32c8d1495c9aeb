"""Verdicts: is each option in effect, does it pay, and if not, what may be the cause. Checks say how they know."""

from labkit.checks.check import Check
from labkit.checks.checks import configuration, expected
from labkit.checks.observed import Observed, observe

__all__ = ["Check", "Observed", "configuration", "expected", "observe"]
