"""The guess as a gate: live, nothing predicted or measured is shown before it is committed or skipped."""

from labkit.notebook.settings import Guess

OPEN = "Commit your guess above, or skip it: predictions and measurements appear then."


class Gate:
    """One notebook's guess. It is made once: a committed number stays as it is, and a skipped one is never scored.

    guess: what is asked, None where a notebook asks nothing. given: the parameters cell's number; headless it counts as
    committed, live it only stands in the field. key: the settings that a guess was made for; "" fits all.
    """

    def __init__(self, guess: Guess | None, *, live: bool, given: float | None):
        self.guess, self.given = guess, given
        self.open = live and guess is not None
        self.value = None if live else given
        self.key = ""

    def commit(self, value: object, key: str) -> float:
        """Fix the guess for the settings of `key`. Raises BadInput for a number out of range; the gate stays closed."""
        value = self.guess.check(value)
        if self.open:
            self.value, self.key, self.open = value, key, False
        return self.value

    def skip(self) -> None:
        """Go on without a guess."""
        self.open = False

    def at(self, key: str) -> float | None:
        """The guess, where it was made for these settings."""
        return self.value if not self.key or self.key == key else None
