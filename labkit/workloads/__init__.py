"""Seeded prompts by name. The same name, seed and lengths give the same prompts on every machine and for every arm."""

from labkit.workloads.loads import NAMES, Prompt, check, counter, load

__all__ = ["NAMES", "Prompt", "check", "counter", "load"]
