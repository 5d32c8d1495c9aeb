"""One line of a verdict table."""

from dataclasses import asdict, dataclass

PASS, FAIL, UNKNOWN = "pass", "fail", "cannot tell"


@dataclass(frozen=True)
class Check:
    """What was asked, what is seen, where, and the verdict; `note` says what follows from it.

    A verdict is "cannot tell" wherever the evidence does not reach: nothing passes because nothing spoke against it.
    """

    name: str
    asked: str
    seen: str
    where: str
    verdict: str
    note: str = ""

    def as_dict(self) -> dict:
        return asdict(self)
