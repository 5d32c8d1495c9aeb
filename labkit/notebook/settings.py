"""The settings that a panel offers: each is a slider, a menu or a switch live, and a typed parameter headless."""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.engines.adapter import options
from labkit.errors import BadInput
from labkit.fields import Flag, check, real, whole


@dataclass(frozen=True)
class Setting:
    """One thing that a reader may change.

    kind: int, float, bool or choice. `restarts`: the engine must start again for it. `tip` is the tooltip; it says what
    the setting does, in one sentence. For a choice, `choices` are the values.
    """

    name: str
    label: str
    kind: str
    tip: str
    low: float = 0
    high: float = 0
    step: float = 1
    choices: tuple[str | int, ...] = ()
    restarts: bool = False

    def check(self, value: object) -> object:
        """The value in its type and range. Raises BadInput naming this setting."""
        if self.kind == "int":
            return check(whole(int(self.low), int(self.high)), self.name, value)
        if self.kind == "float":
            return check(real(self.low, self.high), self.name, value)
        if self.kind == "bool":
            return check(Flag, self.name, value)
        if value not in self.choices or isinstance(value, bool):
            raise BadInput(self.name, value, "one of " + ", ".join(map(str, self.choices)))
        return value


def of_engine(engine: str, field: str, label: str) -> Setting:
    """A number that the engine declares as a setting, with its range: field as in labkit.engines.adapter.Option."""
    option = options(engine)[field]
    name = field.rsplit(".", 1)[-1]
    return Setting(name, label, "int", _sentence(option.help), option.low, option.high, restarts=option.restarts)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


@dataclass(frozen=True)
class Guess:
    """What the reader commits to before anything is measured: a number in `unit`, asked in one sentence.

    elsewhere: the question where a ladder has something else in the place of the published change; {arm} is its name.
    """

    question: str
    unit: str
    low: float
    high: float
    step: float
    start: float  # where the field stands before the reader has moved it
    elsewhere: str = ""

    def check(self, value: object) -> float | None:
        """None (no guess) or a number in range. Raises BadInput."""
        return check(real(self.low, self.high) | None, "guess", value)


def checked(settings: Sequence[Setting], given: dict[str, object]) -> dict[str, object]:
    """The given values by name, each checked. Raises BadInput for an unknown name or a missing one."""
    known = {s.name: s for s in settings}
    for name, value in given.items():
        if name not in known:
            raise BadInput(name, value, "one of the settings " + ", ".join(known))
    for name in known:
        if name not in given:
            raise BadInput(name, None, "a value for each setting of this notebook")
    return {name: known[name].check(value) for name, value in given.items()}


WORKLOAD = Setting(
    "workload",
    "load",
    "choice",
    "What the engine is asked to write; acceptance differs by load.",
    choices=(
        "word-problems",
        "word-problems-sampled",
        "word-problems-unseen",
        "word-problems-unseen-sampled",
        "repetitive",
        "code",
    ),
)
OUTPUT = Setting("output_tokens", "output tokens", "int", "Tokens that each request generates.", 16, 1024, 16)
COUNT = Setting("count", "prompts", "int", "Distinct prompts; every arm and every repeat uses the same ones.", 1, 32)
REPEATS = Setting("repeats", "repeats", "int", "Passes over the prompts; fewer than 3 give no valid interval.", 1, 20)
CONTEXT = Setting("prompt_tokens", "context", "int", "Tokens of the prompt.", 16, 262144)
LOAD_SETTINGS = (WORKLOAD, OUTPUT, COUNT, REPEATS)
