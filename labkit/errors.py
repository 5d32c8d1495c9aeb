"""Errors that a person caused and can mend: one clear line each. Standard library only, and little of it."""

import re

# Names whose values must never be written down. A name such as SGLANG_SIMULATE_ACC_TOKEN_MODE is not one of them.
SECRET_NAME = re.compile(r"(^|[_-])(api[_-]?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)


class LabError(Exception):
    """A failure with a message meant for people; the command line prints it without a traceback and exits with 1."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows below a cell in place of a traceback: the one line, in red."""
        return [f"\x1b[31m{type(self).__name__}: {self}\x1b[0m"]


class BadInput(LabError):
    """A field got a value that is not accepted. The command line exits with 2; a server answers 400."""

    def __init__(self, field: str, value: object, accepted: str):
        self.field, self.value, self.accepted = field, value, accepted
        shown = repr(value)
        super().__init__(f"{field}: got {shown if len(shown) <= 120 else shown[:117] + '...'}; accepted: {accepted}")
