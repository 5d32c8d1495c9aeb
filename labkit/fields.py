"""Typed fields of everything that people write, on pydantic; what does not fit becomes the lab's one line.

Parameters reach the lab from YAML (where `1e-3` is a string), from papermill (which passes any type and only warns
about unknown names) and from sliders, so nothing downstream may trust a type.
"""

import math
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from labkit.errors import SECRET_NAME, BadInput

NOT_SHOWN = "(not shown)"  # instead of a value that may be a secret


def refuse(accepted: str = "", *, at: tuple[str, ...] = (), **shown: object) -> PydanticCustomError:
    """What a validator raises. accepted: in words ("": as the field's schema says); at: a field below this one;
    value: what is shown instead of the input, for secrets and for checks of several fields."""
    return PydanticCustomError("refused", "refused", {"accepted": accepted, "at": at, **shown})


def _number(value: object) -> object:
    """A number, also one that YAML or a command line wrote as text; never a bool, a NaN or an infinity."""
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                raise refuse() from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise refuse()
    return value


def _flag(value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise refuse()
    return value


def _printable(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise refuse()
    return value


def _listed(value: object) -> object:
    if not isinstance(value, (list, tuple)):  # a lone string would become its letters
        raise refuse()
    return value


Number = Annotated[float, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_printable)]


def whole(low: int | None = None, high: int | None = None) -> Any:
    """The type of an int in [low, high], None: without an end; "16" and 16.0 are taken, True is not."""
    return Annotated[int, Field(ge=low, le=high), BeforeValidator(_number)]


def real(low: float | None = None, high: float | None = None) -> Any:
    """The type of a finite float in [low, high], None: without an end; "1e-3" is taken."""
    return Annotated[float, Field(ge=low, le=high), BeforeValidator(_number)]


def one_of(*names: str) -> Any:
    """The type of one of the given strings."""
    return Literal[names]


def list_of(kind: Any, least: int = 0) -> Any:
    """The type of a tuple of at least `least` items; only a list or a tuple is taken."""
    return Annotated[tuple[kind, ...], Field(min_length=least), BeforeValidator(_listed)]


class Model(BaseModel):
    """A mapping with typed names; unknown names are refused. Frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def checked(cls, value: object, field: str = "") -> Self:
        """Validate a mapping (a model of this class passes). Raises BadInput naming the field below `field`."""
        try:
            return cls.model_validate(value)
        except ValidationError as e:
            raise bad_input(e, _schema(cls), field) from None


# Once for each type: making them takes a hundred times as long as using them, and a sweep's plan has many refusals.
_schema = cache(lambda model: model.model_json_schema(by_alias=True))
_adapter = cache(TypeAdapter)


def check(kind: Any, field: str, value: object) -> Any:
    """The value as one of the types above. Raises BadInput."""
    try:
        adapter = _adapter(kind)
    except TypeError:  # a type that cannot be a key: it is made anew
        adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(value)
    except ValidationError as e:
        raise bad_input(e, adapter.json_schema(), field) from None


def bad_input(error: ValidationError, schema: dict, field: str) -> BadInput:
    """The first error as one line: the path below `field`, its value, and what the JSON schema accepts there."""
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    where = (*first["loc"], *context.get("at", ()))
    value = context["value"] if "value" in context else None if first["type"] == "missing" else first["input"]
    if value is not None and any(SECRET_NAME.search(str(part)) for part in where):
        value = NOT_SHOWN
    inside = where[:-1] if first["type"] == "extra_forbidden" else where
    accepted = context.get("accepted") or _accepted(_below(schema, inside), schema, first["type"] == "extra_forbidden")
    path = field
    for part in where:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return BadInput(path or "parameters", value, accepted)


def _below(schema: dict, where: tuple) -> dict:
    """The part of a JSON schema that describes a path; {} where it does not reach."""
    found = _plain(schema, schema)
    for part in where:
        inner = found.get("items") if isinstance(part, int) else found.get("properties", {}).get(part)
        found = _plain(inner or found.get("additionalProperties") or {}, schema)
    return found


def _plain(part: object, schema: dict) -> dict:
    """Without references, and without the null that an optional field also takes."""
    if not isinstance(part, dict):
        return {}
    for choice in part.get("anyOf", ()):
        if choice.get("type") != "null":
            return _plain(choice, schema)
    return schema["$defs"][part["$ref"].rsplit("/", 1)[-1]] if "$ref" in part else part


def _accepted(part: dict, schema: dict, names: bool) -> str:
    if names:
        return "one of the fields " + ", ".join(part.get("properties", {}))
    choices = part.get("enum") or ([part["const"]] if "const" in part else [])
    if choices:
        return "one of " + ", ".join(map(str, choices))
    kind = part.get("type")
    if kind in ("integer", "number"):
        noun = "an integer" if kind == "integer" else "a number"
        ends = [
            f"{word} {part[key]:g}" if kind == "number" else f"{word} {part[key]}" for word, key in _ENDS if key in part
        ]
        return " ".join([noun, *ends])
    if kind == "array":
        return f"a list of at least {part['minItems']}" if part.get("minItems") else "a list"
    return _WORDS.get(kind, "a value of the right type")


_ENDS = (("from", "minimum"), ("to", "maximum"))
_WORDS = {
    "boolean": "true or false",
    "string": "a string that is not empty",
    "object": "a mapping of names to values",
}
