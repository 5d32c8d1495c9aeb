"""Units as small products: bytes, seconds, FLOP and their prefixes, enough to check that a sum makes sense.

Things that are counted (tokens, steps, parameters, questions) carry no dimension, like the radian: 1/s may be
written tok/s.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from labkit.errors import BadInput

_DIMENSIONS = {"B": ("B", 1.0), "bit": ("B", 0.125), "s": ("s", 1.0), "FLOP": ("FLOP", 1.0), "J": ("J", 1.0)}
_COUNTS = {"1", "token", "tok", "step", "param", "question", "expert", "request", "point", "position", "layer"}
_PREFIXES = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}
_WORDS = {"min": ("s", 60.0), "%": (None, 0.01)}
_ACCEPTED = "products such as B, GB/s, ms, tok/s, FLOP/B, % or 1"


@dataclass(frozen=True)
class Unit:
    """`factor` times the SI product `dimension`, e.g. GB/s = 1e9 * (("B", 1), ("s", -1))."""

    text: str
    factor: float
    dimension: tuple[tuple[str, int], ...]

    @staticmethod
    @lru_cache(maxsize=512)
    def parse(text: str) -> "Unit":
        """'GB/s', 'B/token', '1', '%', 'B*s', 's^2'. Raises BadInput for a word that is not known."""
        if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z%1]+(\^\d)?([*/][A-Za-z1]+(\^\d)?)*", text):
            raise BadInput("unit", text, _ACCEPTED)
        factor, powers = 1.0, {}
        for sign, word, power in re.findall(r"(^|[*/])([A-Za-z%1]+)(?:\^(\d))?", text):
            exponent = int(power or 1) * (-1 if sign == "/" else 1)
            dimension, scale = _word(word, text)
            factor *= scale**exponent
            if dimension:
                powers[dimension] = powers.get(dimension, 0) + exponent
        return Unit(text, factor, tuple(sorted((d, p) for d, p in powers.items() if p)))

    def __mul__(self, other: "Unit") -> "Unit":
        return self._times(other, 1)

    def __truediv__(self, other: "Unit") -> "Unit":
        return self._times(other, -1)

    def _times(self, other: "Unit", sign: int) -> "Unit":
        powers = dict(self.dimension)
        for d, p in other.dimension:
            powers[d] = powers.get(d, 0) + sign * p
        dimension = tuple(sorted((d, p) for d, p in powers.items() if p))
        return Unit("", self.factor * other.factor**sign, dimension)

    def base(self) -> str:
        """The SI unit of this dimension as text: 'B/s', '1'."""
        above = [d if p == 1 else f"{d}^{p}" for d, p in self.dimension if p > 0]
        below = [d if p == -1 else f"{d}^{-p}" for d, p in self.dimension if p < 0]
        return "/".join(["*".join(above) or "1", *below])

    def factor_to(self, text: str) -> float:
        """What a value in this unit is multiplied by to be read in `text`. BadInput when dimensions differ."""
        target = Unit.parse(text)
        if target.dimension != self.dimension:
            raise BadInput("unit", text, f"a unit of the same dimension as {self.text or self.base()}")
        return self.factor / target.factor

    def pretty(self, value: float) -> tuple[float, str]:
        """(factor, unit) that leave one to three digits before the point, for plain B, s, FLOP and their rates."""
        head, _, tail = self.text.partition("/")
        if head not in ("B", "s", "FLOP") or tail == "B" or value == 0:  # FLOP/B reads better without a prefix
            return 1.0, self.text
        steps = ("n", "u", "m", "", "k", "M", "G", "T", "P") if head == "s" else ("", "k", "M", "G", "T", "P")
        fits = [p for p in steps if abs(value) >= _PREFIXES.get(p, 1.0)] or [steps[0]]
        if head == "s":  # seconds stay seconds above one
            fits = [p for p in fits if _PREFIXES.get(p, 1.0) <= 1.0]
        prefix = fits[-1]
        return 1.0 / _PREFIXES.get(prefix, 1.0), prefix + self.text


def minutes(seconds: float) -> str:
    """A duration in the words of a person who waits."""
    if seconds < 1:
        return "1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min"


def _word(word: str, text: str) -> tuple[str | None, float]:
    if word in _COUNTS:
        return None, 1.0
    if word in _WORDS:
        return _WORDS[word]
    for base, (dimension, scale) in _DIMENSIONS.items():
        if word == base:
            return dimension, scale
        prefix = word[: -len(base)]
        if word.endswith(base) and prefix in _PREFIXES and (dimension == "B" or not prefix.endswith("i")):
            return dimension, scale * _PREFIXES[prefix]
    raise BadInput("unit", text, _ACCEPTED)
