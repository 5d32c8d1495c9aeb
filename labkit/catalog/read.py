"""YAML of the catalog into typed entries, with one clear error for whatever is wrong."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from labkit.catalog import files
from labkit.catalog.config import ModelConfig, read_config
from labkit.errors import BadInput
from labkit.evidence import Evidence, Tier
from labkit.units import Unit

SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML has it: ten times as fast


class _Loader(SafeLoader):
    """YAML 1.1 reads 124e9 as text; numbers in a catalog must be numbers."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
)


@dataclass(frozen=True)
class Source:
    """Where figures come from: title, when published or read, address if there is one. `derives`: its figures were
    worked out there from others' measurements."""

    id: str
    title: str
    date: str
    url: str | None = None
    derives: bool = False

    def __str__(self) -> str:
        return f"{self.title} ({self.date})"


@dataclass(frozen=True)
class Peak:
    """A compute peak. `sparse` peaks count skipped zeros and are not reachable by dense work."""

    flops: Evidence
    precision: str
    sparse: bool


@dataclass(frozen=True)
class Machine:
    """Nominal `bandwidth` (spec) and, when known, what memory `sustained` when read by a plain loop, what `decode`
    reached, how much memory there is and how much of it an engine may fill (`usable`); `unified`: shared with the CPU.
    """

    id: str
    name: str
    bandwidth: Evidence
    source: str
    memory: Evidence | None = None
    sustained: Evidence | None = None
    peaks: tuple[Peak, ...] = ()
    note: str = ""
    decode: Evidence | None = None
    usable: Evidence | None = None
    unified: bool = False


@dataclass(frozen=True)
class Model:
    """A model's config and what its makers publish: total_parameters, active_parameters, checkpoint."""

    id: str
    name: str
    config: ModelConfig
    source: str
    published: dict[str, Evidence] = field(default_factory=dict)
    published_notes: dict[str, dict] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Result:
    """Published measurements of one configuration under one load, as published."""

    id: str
    title: str
    model: str
    machine: str
    load: dict
    source: str
    metrics: dict[str, Evidence]
    rung: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Published:
    """A derived number as printed somewhere. `within` is how far a recomputed value may lie from it: half a unit of the
    last printed digit, unless the published figure itself came from rounded inputs (`assumptions` says so).
    `derived_there`: no measurement that was published, but worked out by the source from others' figures.
    """

    name: str
    figure: str
    unit: str
    source: str
    within: float
    assumptions: str = ""
    reason: str = ""
    derived_there: bool = False

    @property
    def value(self) -> float:
        return float(self.figure)


def last_place(figure: str) -> float:
    """The value of one unit in the last printed digit: '3.355' -> 0.001, '402' -> 1, '1.24e9' -> 1e7."""
    digits, _, exponent = figure.lower().partition("e")
    places = len(digits.partition(".")[2])
    return 10.0 ** ((int(exponent) if exponent else 0) - places)


def read_yaml(path: Path) -> dict:
    """The mapping in a YAML file. BadInput names the file for anything else."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise BadInput("catalog file", str(path), f"readable YAML ({' '.join(str(e).split())})") from None
    if not isinstance(document, dict):
        raise BadInput("catalog file", str(path), "a mapping with machines: and models:")
    return document


def source_of(where: str, document: object, key: str) -> Source:
    f = files.Source.checked(document, f"{where}.{key}")
    return Source(key, f.title, (f.date or f.read).isoformat(), f.url, f.derives)


def machine_of(where: str, document: object, sources: dict[str, Source]) -> Machine:
    f = files.Machine.checked(document, where)
    spec = _source(f.source, sources)

    def figure(name: str, tier: Tier, unit: str) -> Evidence | None:
        found = getattr(f, name)
        return found and _evidence(found, f"{where}.{name}", tier, _source(found.source or f.source, sources), unit)

    peaks = [
        Peak(_evidence(p, f"{where}.peaks[{i}]", Tier.SPEC, spec, "TFLOP/s"), p.precision, p.sparse)
        for i, p in enumerate(f.peaks)
    ]
    return Machine(
        f.id,
        f.name,
        figure("bandwidth", Tier.SPEC, "GB/s"),
        spec,
        figure("memory", Tier.SPEC, "GB"),
        figure("sustained", Tier.REPORTED, "GB/s"),
        tuple(peaks),
        f.note.strip(),
        figure("decode", Tier.REPORTED, "GB/s"),
        figure("usable", Tier.REPORTED, "GB"),
        f.unified,
    )


def model_of(where: str, document: object, sources: dict[str, Source], folder: Path) -> Model:
    f = files.Model.checked(document, where)
    source = _source(f.source, sources)
    if f.config is not None:
        config = ModelConfig.made(f.config, f.id, source, f.formats)
    else:
        read = read_config((folder / f.config_path).resolve(), f.id)
        config = replace(read, name=f.id, source=source, formats=f.formats)
    stated = {n: found for n in files.StatedOfModel.model_fields if (found := getattr(f.published, n)) is not None}
    published = {
        n: _evidence(v, f"{where}.published.{n}", Tier.REPORTED, _source(v.source or f.source, sources))
        for n, v in stated.items()
    }
    notes = {n: v.model_dump(include={"counts", "rounded_to"}, exclude_none=True) for n, v in stated.items()}
    return Model(f.id, f.name, config, source, published, notes, f.note.strip())


def result_of(where: str, document: object, sources: dict[str, Source]) -> Result:
    f = files.Result.checked(document, where)
    source = _source(f.source, sources)
    metrics = {n: _evidence(m, f"{where}.metrics.{n}", Tier.REPORTED, source) for n, m in f.metrics.items()}
    return Result(f.id, f.title, f.model, f.machine, f.load, source, metrics, f.rung, f.note.strip())


def published_of(where: str, document: object, sources: dict[str, Source], reasons: dict[str, str]) -> Published:
    f = files.Published.checked(document, where)
    if f.reason is not None and f.reason not in reasons:
        raise BadInput(f"{where}.reason", f.reason, ", ".join(reasons))
    return Published(
        f.name,
        f.figure,
        f.unit,
        _source(f.source, sources),
        f.within or last_place(f.figure) / 2,
        f.assumptions,
        " ".join(reasons[f.reason].split()) if f.reason else "",
        f.source in sources and sources[f.source].derives,
    )


def _source(name: str, sources: dict[str, Source]) -> str:
    """A known source's title, or in a user's own file any text."""
    return str(sources[name]) if name in sources else name


def _evidence(f: files.Figure, where: str, tier: Tier, source: str, unit: str = "") -> Evidence:
    """unit: the dimension that it must have, and then it must be positive; without one a bare number counts
    parameters."""
    if unit and f.unit is None:
        raise BadInput(f"{where}.unit", None, f"a unit such as {unit}")
    found = Evidence(f.value, f.unit or "param", tier, source, f.low, f.high)
    if unit and Unit.parse(found.unit).dimension != Unit.parse(unit).dimension:
        raise BadInput(f"{where}.unit", f.unit, f"a unit of the same dimension as {unit}")
    if unit and not f.value > 0:
        raise BadInput(f"{where}.value", f.value, f"a positive number of {unit}")
    return found
