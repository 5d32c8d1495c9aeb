"""What a file of the catalog may hold, typed field by field; labkit.catalog.read makes its entries of it."""

import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from labkit import fields
from labkit.errors import BadInput
from labkit.fields import Flag, Number, Text, list_of, refuse
from labkit.units import Unit


def _unit(text: str) -> str:
    try:
        Unit.parse(text)
    except BadInput as e:
        raise refuse(e.accepted) from None
    return text


def _printed(text: str) -> str:
    try:
        float(text)
    except ValueError:
        raise refuse("a number as printed, in quotes") from None
    return text


UnitText = Annotated[Text, AfterValidator(_unit)]


class Figure(fields.Model):
    """A value with its unit, the interval around it and a source of its own where it has them."""

    value: Number
    unit: UnitText | None = None
    low: Number | None = None
    high: Number | None = None
    source: Text | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Figure":
        if (self.low, self.high) != (None, None) and None in (self.low, self.high):
            raise refuse("both ends of the interval or none", at=("low",), value=self.low)
        if self.low is not None and not self.low <= self.value <= self.high:
            raise refuse("an interval around the value", at=("low",), value=self.low)
        return self


class Stated(Figure):
    """What a maker states of a model. rounded_to: one unit of the last digit; counts: what is in it."""

    counts: Text | None = None
    rounded_to: Number | None = None


class PeakFigure(Figure):
    precision: Text
    sparse: Flag


class Source(fields.Model):
    title: Text
    date: datetime.date | None = None
    read: datetime.date | None = None
    url: Text | None = None
    derives: Flag = False

    @model_validator(mode="after")
    def _dated(self) -> "Source":
        if self.date is None and self.read is None:
            raise refuse("date: or read: as YYYY-MM-DD", at=("date",), value=None)
        return self


class Entry(fields.Model):
    id: Text
    source: Text
    note: str = ""


class Machine(Entry):
    name: Text
    bandwidth: Figure
    memory: Figure | None = None
    sustained: Figure | None = None
    decode: Figure | None = None
    usable: Figure | None = None
    unified: Flag = False
    peaks: list_of(PeakFigure) = ()


class StatedOfModel(fields.Model):
    total_parameters: Stated | None = None
    active_parameters: Stated | None = None
    checkpoint: Stated | None = None


class Model(Entry):
    name: Text
    published: StatedOfModel = StatedOfModel()
    config: dict | None = None
    config_path: Text | None = None
    formats: dict[str, Text] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_config(self) -> "Model":
        if (self.config is None) == (self.config_path is None):
            accepted = "either config: with the fields or config_path: to a config.json"
            raise refuse(accepted, at=("config",), value=self.config)
        return self


class Result(Entry):
    title: Text
    model: Text
    machine: Text
    rung: Text | None = None
    load: dict[str, object]
    metrics: dict[str, Figure]


class Published(fields.Model):
    name: Text
    figure: Annotated[Text, AfterValidator(_printed)]
    unit: UnitText
    source: Text
    within: Annotated[Number, Field(gt=0)] | None = None
    assumptions: str = ""
    reason: Text | None = None
