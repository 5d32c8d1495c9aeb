"""Measuring a running engine over HTTP: one streamed request, sessions of them, doubts and estimates."""
