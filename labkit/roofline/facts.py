"""Every published derived number, recomputed from the catalog's constants and held beside what was published."""

from dataclasses import dataclass

from labkit import catalog
from labkit.catalog.read import Published
from labkit.errors import LabError
from labkit.evidence import Evidence
from labkit.roofline.facts_account import account_facts
from labkit.roofline.facts_published import published_facts


@dataclass(frozen=True)
class Fact:
    """One number twice: as published and as computed. `also` is the other figure where two disagree."""

    published: Published
    computed: Evidence
    also: Evidence | None = None

    @property
    def name(self) -> str:
        return self.published.name

    @property
    def value(self) -> float:
        """The computed value in the published unit."""
        return self.computed.to(self.published.unit).value

    @property
    def ok(self) -> bool:
        """Whether the computed value would be printed as the published one (or lies within its stated tolerance)."""
        return abs(self.value - self.published.value) <= self.published.within * (1 + 1e-9)

    def as_dict(self) -> dict:
        p = self.published
        return {
            "name": p.name,
            "published": p.value,
            "computed": self.value,
            "unit": p.unit,
            "tier": self.computed.tier.value,
            "source": p.source,
            "derived_there": p.derived_there,
            "ok": self.ok,
            "rests_on": [t.value for t in self.computed.rests_on()],
            "formula": self.computed.formula,
            "inputs_from": self.computed.source,
            "assumptions": p.assumptions,
            "reason": p.reason,
            "also": None if self.also is None else self.also.to(p.unit).value,
        }


def facts() -> list[Fact]:
    """All of them, in the catalog's order. LabError when a published number has no formula or a formula no number."""
    computed = {name: rest for name, *rest in [*published_facts(), *account_facts()]}
    rows = catalog.catalog().published
    if unmatched := set(computed) ^ set(rows):
        raise LabError("published numbers and formulas that do not meet: " + ", ".join(sorted(unmatched)))
    return [Fact(row, *computed[name]) for name, row in rows.items()]
