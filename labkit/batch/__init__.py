"""Notebooks without a person: typed parameters checked before a kernel starts, papermill, one directory a run."""
