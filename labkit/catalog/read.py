"""YAML of the catalog into typed entries, with one clear error for whatever is wrong."""

import datetime
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from labkit.catalog.config import ModelConfig, read_config
from labkit.errors import BadInput
from labkit.evidence import Evidence, Tier
from labkit.units import Unit


class _Loader(yaml.SafeLoader):
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


class Entry:
    """One entry of a file, read field by field; `where` names it in errors."""

    def __init__(self, where: str, fields: object, known: set[str]):
        self.where = where
        if not isinstance(fields, dict):
            raise BadInput(where, fields, "a mapping of fields")
        if unknown := set(map(str, fields)) - known:
            raise BadInput(f"{where}: unknown fields", ", ".join(sorted(unknown)), ", ".join(sorted(known)))
        self.fields = fields

    def text(self, name: str, default: str | None = None) -> str:
        value = self.fields.get(name, default)
        if not isinstance(value, str) or (not value.strip() and default is None):
            raise BadInput(f"{self.where}: {name}", value, "a text")
        return value.strip()

    def evidence(self, name: str, tier: Tier, source: str, default_unit: str | None = None) -> Evidence | None:
        """{value, unit[, low, high]} as evidence, None when absent."""
        if name not in self.fields:
            return None
        part = Entry(
            f"{self.where}: {name}",
            self.fields[name],
            {"value", "unit", "low", "high", "source", "counts", "rounded_to", "precision", "sparse"},
        )
        try:
            return Evidence(
                part.fields.get("value"),
                part.fields.get("unit", default_unit),
                tier,
                source,
                part.fields.get("low"),
                part.fields.get("high"),
            )
        except BadInput as e:
            raise BadInput(f"{self.where}: {name}", self.fields[name], f"a value with a unit ({e})") from None


def source_of(where: str, fields: object, key: str) -> Source:
    entry = Entry(f"{where}: {key}", fields, {"title", "date", "read", "url", "derives"})
    date = entry.fields.get("date", entry.fields.get("read"))
    if not isinstance(date, datetime.date):
        raise BadInput(f"{entry.where}: date", date, "date: or read: as YYYY-MM-DD")
    return Source(
        key, entry.text("title"), date.isoformat(), entry.fields.get("url"), entry.fields.get("derives") is True
    )


def machine_of(where: str, fields: object, sources: dict[str, Source]) -> Machine:
    known = {"id", "name", "bandwidth", "memory", "usable", "unified", "sustained", "decode", "peaks", "source", "note"}
    e = Entry(where, fields, known)
    e = Entry(f"{where} {e.text('id')}", fields, set(e.fields))
    source = _source(e, sources)
    bandwidth = _positive(e, "bandwidth", e.evidence("bandwidth", Tier.SPEC, source), "GB/s")
    if bandwidth is None:
        raise BadInput(f"{e.where}: bandwidth", None, "{value: 273, unit: GB/s}")
    peaks = []
    for i, p in enumerate(e.fields.get("peaks") or ()):
        peak = Entry(f"{e.where}: peaks[{i}]", {"flops": p}, {"flops"})
        value = _positive(peak, "flops", peak.evidence("flops", Tier.SPEC, source), "TFLOP/s")
        if not isinstance(p.get("precision"), str) or not isinstance(p.get("sparse"), bool):
            raise BadInput(peak.where, p, "precision: a name and sparse: true or false")
        peaks.append(Peak(value, p["precision"], p["sparse"]))
    return Machine(
        e.text("id"),
        e.text("name"),
        bandwidth,
        source,
        _positive(e, "memory", e.evidence("memory", Tier.SPEC, source), "GB"),
        _reported(e, "sustained", "GB/s", source, sources),
        tuple(peaks),
        e.text("note", ""),
        _reported(e, "decode", "GB/s", source, sources),
        _reported(e, "usable", "GB", source, sources),
        e.fields.get("unified", False) is True,
    )


def _reported(e: Entry, name: str, unit: str, source: str, sources: dict[str, Source]) -> Evidence | None:
    """A figure that somebody measured, with a source of its own where it names one."""
    own = e.fields.get(name)
    if isinstance(own, dict) and "source" in own:
        source = _source(Entry(f"{e.where}: {name}", own, {"value", "unit", "low", "high", "source"}), sources)
    return _positive(e, name, e.evidence(name, Tier.REPORTED, source), unit)


def model_of(where: str, fields: object, sources: dict[str, Source], folder: Path) -> Model:
    e = Entry(where, fields, {"id", "name", "source", "published", "config", "config_path", "formats", "note"})
    e = Entry(f"{where} {e.text('id')}", fields, set(e.fields))
    source = _source(e, sources)
    if ("config" in e.fields) == ("config_path" in e.fields):
        raise BadInput(e.where, ", ".join(e.fields), "either config: with the fields or config_path: to a config.json")
    formats = e.fields.get("formats") or {}
    if not isinstance(formats, dict):
        raise BadInput(f"{e.where}: formats", formats, "a mapping of role to number format")
    if "config" in e.fields:
        if not isinstance(e.fields["config"], dict):
            raise BadInput(f"{e.where}: config", e.fields["config"], "the fields of a config.json")
        config = ModelConfig.made(e.fields["config"], e.text("id"), source, formats)
    else:
        read = read_config((folder / e.text("config_path")).resolve(), e.text("id"))
        config = replace(read, name=e.text("id"), source=source, formats=formats)
    part = Entry(
        f"{e.where}: published",
        e.fields.get("published") or {},
        {"total_parameters", "active_parameters", "checkpoint"},
    )
    published, notes = {}, {}
    for name, value in part.fields.items():
        own = sources.get(value.get("source")) if isinstance(value, dict) else None
        published[name] = part.evidence(name, Tier.REPORTED, str(own) if own else source, "param")
        notes[name] = {k: value[k] for k in ("counts", "rounded_to") if k in value}
    return Model(e.text("id"), e.text("name"), config, source, published, notes, e.text("note", ""))


def result_of(where: str, fields: object, sources: dict[str, Source]) -> Result:
    e = Entry(where, fields, {"id", "title", "model", "machine", "rung", "load", "source", "metrics", "note"})
    source = _source(e, sources)
    load = Entry(f"{where}: load", e.fields.get("load"), set(e.fields.get("load") or ()))
    load.text("name")
    names = e.fields.get("metrics")
    metrics = Entry(f"{where}: metrics", names, set(names or ()))
    return Result(
        e.text("id"),
        e.text("title"),
        e.text("model"),
        e.text("machine"),
        dict(load.fields),
        source,
        {m: metrics.evidence(m, Tier.REPORTED, source) for m in metrics.fields},
        e.fields.get("rung"),
        e.text("note", ""),
    )


def published_of(where: str, fields: object, sources: dict[str, Source], reasons: dict[str, str]) -> Published:
    e = Entry(where, fields, {"name", "figure", "unit", "source", "within", "assumptions", "reason"})
    figure, unit = e.text("figure"), e.text("unit")
    Unit.parse(unit)
    try:
        float(figure)
    except ValueError:
        raise BadInput(f"{where}: figure", figure, "a number as printed, in quotes") from None
    within = e.fields.get("within", last_place(figure) / 2)
    if isinstance(within, bool) or not isinstance(within, int | float) or not within > 0:
        raise BadInput(f"{where}: within", within, "a positive number")
    reason = e.fields.get("reason")
    if reason is not None and reason not in reasons:
        raise BadInput(f"{where}: reason", reason, ", ".join(reasons))
    return Published(
        e.text("name"),
        figure,
        unit,
        _source(e, sources),
        within,
        e.text("assumptions", ""),
        " ".join(reasons[reason].split()) if reason else "",
        e.text("source") in sources and sources[e.text("source")].derives,
    )


def _source(e: Entry, sources: dict[str, Source]) -> str:
    """A known source's title, or in a user's own file any text."""
    name = e.text("source")
    return str(sources[name]) if name in sources else name


def _positive(e: Entry, name: str, value: Evidence | None, unit: str) -> Evidence | None:
    if value is not None:
        value.to(unit)  # the dimension must fit
        if not value.value > 0:
            raise BadInput(f"{e.where}: {name}", value.value, f"a positive number of {unit}")
    return value
