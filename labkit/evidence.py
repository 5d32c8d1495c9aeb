"""A number that cannot lose where it came from: value, unit, tier, source, and for a derived one its ancestry.

Tiers (Tier): `reported` a published measurement by others; `spec` a specification or config field; `derived`
computed here by a formula; `measured` measured by this lab. Arithmetic on evidence always yields `derived`, whatever
went in, and no constructor accepts `measured` together with a formula or inputs: a product never passes for a
measurement.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real

from labkit.errors import BadInput
from labkit.units import Unit


class Tier(StrEnum):
    """How a number is known."""

    REPORTED = "reported"
    SPEC = "spec"
    DERIVED = "derived"
    MEASURED = "measured"

    @property
    def shape(self) -> str:
        """A sign of its own for each tier, so that tables and plots never tell tiers apart by colour alone."""
        return _SHAPES[self]

    def badge(self) -> str:
        """Shape and word, e.g. '● measured'."""
        return f"{self.shape} {self.value}"


_SHAPES = {Tier.REPORTED: "□", Tier.SPEC: "△", Tier.DERIVED: "◇", Tier.MEASURED: "●"}


@dataclass(frozen=True)
class Evidence:
    """One number. `value` is in `unit`; `low`/`high` bound it when known, in the same unit.

    `formula` and `inputs` belong to derived evidence and to it alone. Raises BadInput for a value that is not a
    finite number, a unit that does not parse, an empty source, an interval that does not hold the value, or a tier at
    odds with formula and inputs.
    """

    value: float
    unit: str
    tier: Tier
    source: str
    low: float | None = None
    high: float | None = None
    formula: str | None = None
    inputs: "tuple[Evidence, ...]" = ()

    def __post_init__(self):
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is None and name != "value":
                continue
            # Evidence is not a Real: wrapping a derived value in measured() fails here.
            if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
                raise BadInput(f"evidence {name}", number, "a finite plain number")
            object.__setattr__(self, name, float(number))
        Unit.parse(self.unit)
        try:
            object.__setattr__(self, "tier", Tier(self.tier))
        except ValueError:
            raise BadInput("evidence tier", self.tier, ", ".join(Tier)) from None
        if not isinstance(self.source, str) or not self.source.strip():
            raise BadInput("evidence source", self.source, "where the number comes from, in words")
        if (self.low is None) != (self.high is None):
            raise BadInput("evidence interval", (self.low, self.high), "both ends or none")
        if self.low is not None and not self.low <= self.value <= self.high:
            raise BadInput("evidence interval", (self.low, self.high), f"two ends around {self.value}")
        object.__setattr__(self, "inputs", tuple(self.inputs))
        if not all(isinstance(i, Evidence) for i in self.inputs):
            raise BadInput("evidence inputs", self.inputs, "a tuple of Evidence")
        if self.tier is Tier.DERIVED:
            if not self.formula or not self.inputs:
                raise BadInput("derived evidence", self.formula, "a formula and the inputs it was applied to")
        elif self.formula is not None or self.inputs:
            raise BadInput("evidence tier", self.tier.value, "only `derived` for what was computed from other evidence")

    # --- arithmetic: always derived -------------------------------------------------------------------------------

    def __add__(self, other: "Evidence | float") -> "Evidence":
        return _combine("+", self, other)

    def __radd__(self, other: float) -> "Evidence":
        return _combine("+", other, self)

    def __sub__(self, other: "Evidence | float") -> "Evidence":
        return _combine("-", self, other)

    def __rsub__(self, other: float) -> "Evidence":
        return _combine("-", other, self)

    def __mul__(self, other: "Evidence | float") -> "Evidence":
        return _combine("*", self, other)

    def __rmul__(self, other: float) -> "Evidence":
        return _combine("*", other, self)

    def __truediv__(self, other: "Evidence | float") -> "Evidence":
        return _combine("/", self, other)

    def __rtruediv__(self, other: float) -> "Evidence":
        return _combine("/", other, self)

    # --- reading --------------------------------------------------------------------------------------------------

    def to(self, unit: str) -> "Evidence":
        """The same evidence written in another unit of the same dimension (else BadInput); tier and ancestry stay."""
        factor = Unit.parse(self.unit).factor_to(unit)
        low, high = (None if v is None else v * factor for v in (self.low, self.high))
        return Evidence(self.value * factor, unit, self.tier, self.source, low, high, self.formula, self.inputs)

    @property
    def si(self) -> float:
        """The plain value in SI base units (bytes, seconds, FLOP)."""
        return self.value * Unit.parse(self.unit).factor

    def above(self, limit: float) -> bool:
        """Does the whole interval lie above the limit? False without an interval."""
        return self.low is not None and self.low > limit

    def below(self, limit: float) -> bool:
        """Does the whole interval lie below the limit? False without an interval."""
        return self.high is not None and self.high < limit

    def leaves(self) -> "tuple[Evidence, ...]":
        """The underived evidence this rests on, each once, in order of first use."""
        if not self.inputs:
            return (self,)
        return tuple(dict.fromkeys(leaf for i in self.inputs for leaf in i.leaves()))

    def rests_on(self) -> tuple[Tier, ...]:
        """The tiers of the leaves, in the order of Tier."""
        found = {leaf.tier for leaf in self.leaves()}
        return tuple(t for t in Tier if t in found)

    def badge(self) -> str:
        """Shape and word for tables; a derived number also says what it was derived from."""
        if self.tier is not Tier.DERIVED:
            return self.tier.badge()
        return f"{self.tier.badge()} from {', '.join(self.rests_on())}"

    def quantity(self, spec: str = "") -> str:
        """Value and unit without the tier, for a place that shows the badge in a column of its own. Without `spec` the
        unit gets a prefix that keeps the number short (0.0277 s becomes 27.7 ms)."""
        value, unit, low, high = self.value, self.unit, self.low, self.high
        if not spec:
            spec = ".4g"
            factor, unit = Unit.parse(self.unit).pretty(self.value)
            value *= factor
            low, high = (None if v is None else v * factor for v in (low, high))
        text = format(value, spec)
        if low is not None:
            text += f" [{format(low, spec)}, {format(high, spec)}]"
        return text if unit == "1" else f"{text} {unit}"

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        """Like the number, with its unit and always its tier; `spec` applies to the number as it stands in its unit."""
        return f"{self.quantity(spec)} ({self.badge()})"

    def as_dict(self) -> dict:
        """For JSON, ancestry included."""
        full = {"value": self.value, "unit": self.unit, "tier": self.tier.value, "source": self.source}
        if self.low is not None:
            full |= {"low": self.low, "high": self.high}
        if self.inputs:
            full |= {"formula": self.formula, "inputs": [i.as_dict() for i in self.inputs]}
        return full

    @classmethod
    def from_dict(cls, d: dict) -> "Evidence":
        """The inverse of as_dict; the same checks apply."""
        known = {k: v for k, v in d.items() if k != "inputs"}
        try:
            return cls(**known, inputs=tuple(cls.from_dict(i) for i in d.get("inputs", ())))
        except TypeError as e:
            raise BadInput("evidence", d, f"the keys that as_dict writes ({e})") from None


Number = float | Evidence  # formulas that only multiply and divide take either


def positive(**values: Number) -> None:
    """Raises BadInput naming the first of these that is not above zero."""
    for name, value in values.items():
        if not (value.value if isinstance(value, Evidence) else value) > 0:
            raise BadInput(name, value, "a positive number")


def reported(value: float, unit: str, source: str) -> Evidence:
    """A measurement published by someone else; nobody here repeated it."""
    return Evidence(value, unit, Tier.REPORTED, source)


def spec(value: float, unit: str, source: str) -> Evidence:
    """A specification or a config field."""
    return Evidence(value, unit, Tier.SPEC, source)


def measured(value: float, unit: str, source: str, low: float | None = None, high: float | None = None) -> Evidence:
    """Measured by this lab; `source` names the machine or record. Takes plain numbers only, never other evidence."""
    return Evidence(value, unit, Tier.MEASURED, source, low, high)


def derived(value: float, unit: str, formula: str, inputs: tuple[Evidence, ...]) -> Evidence:
    """The result of a formula that plain arithmetic does not cover (a count, a power, a rounding)."""
    return Evidence(value, unit, Tier.DERIVED, _sources(inputs), None, None, formula, inputs)


def apply(function: Callable[..., float], unit: str, formula: str, *inputs: Evidence) -> Evidence:
    """derived(function(values of the inputs in SI)): for powers, rounding and the like."""
    return derived(function(*(i.si for i in inputs)), unit, formula, inputs)


def _sources(inputs: tuple[Evidence, ...]) -> str:
    return "; ".join(dict.fromkeys(leaf.source for i in inputs for leaf in i.leaves()))


_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def _combine(sign: str, a: "Evidence | float", b: "Evidence | float") -> Evidence:
    """One operation in SI units. Intervals combine by their extreme ends: wide, but never too narrow."""
    for side in (a, b):
        if not isinstance(side, Evidence) and (isinstance(side, bool) or not isinstance(side, Real)):
            return NotImplemented
    units = [Unit.parse(x.unit) if isinstance(x, Evidence) else Unit.parse("1") for x in (a, b)]
    if sign in "+-":
        if units[0].dimension != units[1].dimension:
            raise BadInput(f"evidence {sign}", f"{units[0].text} {sign} {units[1].text}", "two values of one dimension")
        unit = units[0].base()
    else:
        unit = (units[0] * units[1] if sign == "*" else units[0] / units[1]).base()
    operate = _OPERATIONS[sign]
    value = operate(_ends(a)[1], _ends(b)[1])
    low = high = None
    if any(isinstance(x, Evidence) and x.low is not None for x in (a, b)):
        ends_a, ends_b = _ends(a), _ends(b)
        # A divisor whose interval holds zero bounds nothing: the interval is dropped.
        if not (sign == "/" and ends_b[0] <= 0 <= ends_b[2]):
            corners = [operate(x, y) for x in (ends_a[0], ends_a[2]) for y in (ends_b[0], ends_b[2])]
            low, high = min(*corners, value), max(*corners, value)
    inputs = tuple(x for x in (a, b) if isinstance(x, Evidence))
    formula = " ".join((_name(a), sign, _name(b)))
    return Evidence(value, unit, Tier.DERIVED, _sources(inputs), low, high, formula, inputs)


def _ends(x: "Evidence | float") -> tuple[float, float, float]:
    """Low, value, high in SI; a number without an interval is its own ends."""
    if not isinstance(x, Evidence):
        return (x, x, x)
    factor = Unit.parse(x.unit).factor
    low, high = (x.value if v is None else v for v in (x.low, x.high))
    return (low * factor, x.value * factor, high * factor)


def _name(x: "Evidence | float") -> str:
    return x.quantity() if isinstance(x, Evidence) else f"{x:g}"
