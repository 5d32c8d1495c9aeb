"""Engines: one configuration for all of them, adapters that turn it into a command, and the process that is watched."""
