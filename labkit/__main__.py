"""`python -m labkit`: the command line where its script is not on the PATH."""

import labkit.cli.__main__  # noqa: F401
