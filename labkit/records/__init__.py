"""Records: one directory per run that survives a kill at any byte, and a store that finds a measurement again."""

from labkit.records.reader import Run, read_run
from labkit.records.store import Store
from labkit.records.writer import RunWriter

__all__ = ["Run", "RunWriter", "Store", "read_run"]
