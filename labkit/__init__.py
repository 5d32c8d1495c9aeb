"""A lab for tuning LLM decoding, one optimisation at a time, against a live engine."""

__version__ = "0.1.0"
