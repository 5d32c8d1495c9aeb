"""A JSON object read field by field."""

import json
import math
from collections.abc import Mapping
from typing import Any

from labkit.errors import BadInput


def parse(body: bytes) -> dict[str, Any]:
    """A request body as a JSON object. BadInput "body" for anything else, text with lone surrogates included.

    NaN and infinities pass here, so that the field which holds one can be named.
    """
    try:
        document = json.loads(body)
        if rb"\ud" in body.lower():
            json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate is text that nobody can encode
    except RecursionError:
        raise BadInput("body", body[:40], "JSON that is nested less deeply") from None
    except ValueError as e:
        raise BadInput("body", body[:60], f"valid JSON ({str(e).splitlines()[0][:120]})") from None
    if not isinstance(document, dict):
        raise BadInput("body", document, "a JSON object")
    return document


class Fields:
    """Reads a JSON object field by field; `done` refuses what nobody asked for."""

    def __init__(self, document: Mapping[str, Any], prefix: str = ""):
        self._left, self._prefix = dict(document), prefix

    def name(self, field: str) -> str:
        return self._prefix + field

    def take(self, field: str, default: Any = None) -> Any:
        """The raw value; null counts as absent."""
        value = self._left.pop(field, None)
        return default if value is None else value

    def number(self, field: str, default: float, low: float, high: float, *, above: bool = False) -> float:
        """A finite number of [low, high], or of (low, high] with `above`."""
        value = self.take(field, default)
        fits = is_number(value) and (low < value if above else low <= value) and value <= high
        if not fits:
            raise BadInput(self.name(field), value, f"a number {'above' if above else 'from'} {low:g} to {high:g}")
        return float(value)

    def whole(self, field: str, default: int | None, low: int, high: int, *, also: tuple = ()) -> int | None:
        value = self.take(field, default)
        if value is None or value in also and is_number(value):
            return None if value is None else int(value)
        if not is_number(value) or value != int(value) or not low <= value <= high:
            raise BadInput(self.name(field), value, f"a whole number from {low} to {high}")
        return int(value)

    def flag(self, field: str, default: bool) -> bool:
        value = self.take(field, default)
        if not isinstance(value, bool):
            raise BadInput(self.name(field), value, "true or false")
        return value

    def text(self, field: str, default: str | None = None, *, longest: int = 256) -> str | None:
        value = self.take(field, default)
        if value is not None and (not isinstance(value, str) or len(value) > longest):
            raise BadInput(self.name(field), value, f"a string of at most {longest} characters")
        return value

    def choice(self, field: str, *accepted: str) -> str | None:
        value = self.take(field)
        if value is not None and value not in accepted:
            raise BadInput(self.name(field), value, " or ".join(json.dumps(a) for a in accepted))
        return value

    def inside(self, field: str) -> "Fields":
        value = self.take(field, {})
        if not isinstance(value, dict):
            raise BadInput(self.name(field), value, "a JSON object")
        return Fields(value, self.name(field) + ".")

    def off(self, table: Mapping[str, tuple]) -> None:
        """Fields that may only be given at a value that changes nothing."""
        for field, neutral in table.items():
            value = self.take(field)
            if value is not None and not any(value == n and type(value) in _kin(n) for n in neutral):
                accepted = " or ".join(json.dumps(n) for n in neutral) or "null"
                raise BadInput(self.name(field), value, f"{accepted} (the pocket engine does not implement it)")

    def ignore(self, *names: str) -> None:
        """Fields whose value is nobody's business here: they route, label or cache what this server does not."""
        for name in names:
            self._left.pop(name, None)

    def rest(self) -> dict[str, Any]:
        """Everything that nobody took."""
        left, self._left = self._left, {}
        return left

    def done(self) -> None:
        if self._left:
            field, value = next(iter(self._left.items()))
            raise BadInput(self.name(field), value, "no such field here")


def _kin(value: Any) -> tuple[type, ...]:
    return (int, float) if type(value) in (int, float) else (type(value),)


def is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
