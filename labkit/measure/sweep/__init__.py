"""A night of configurations: which there are, in what order they are measured, what is decided on the way."""
