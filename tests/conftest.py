"""Hypothesis on shared machines: no judgement of a property by how long an example took to make or to run."""

from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
