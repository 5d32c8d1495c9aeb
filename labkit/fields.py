"""Checks of single fields: each returns the value in its type or raises BadInput naming field, value, what is accepted.

Parameters reach the lab from YAML (where `1e-3` is a string), from papermill (which passes any type and only warns
about unknown names) and from sliders, so nothing downstream may trust a type.
"""

from collections.abc import Callable, Iterable

from labkit.errors import BadInput

Check = Callable[[str, object], object]


def integer(low: int, high: int) -> Check:
    """An int in [low, high]; a float or string that is exactly an integer is taken ("16", 16.0), a bool is not."""
    accepted = f"an integer from {low} to {high}"

    def check(field: str, value: object) -> int:
        number = _number(value)
        if number is None or number != int(number) or not low <= number <= high:
            raise BadInput(field, value, accepted)
        return int(number)

    return check


def real(low: float, high: float) -> Check:
    """A float in [low, high]; numeric strings such as "1e-3" are taken, because YAML 1.1 reads 1e-3 as a string."""
    accepted = f"a number from {low:g} to {high:g}"

    def check(field: str, value: object) -> float:
        number = _number(value)
        if number is None or not low <= number <= high:
            raise BadInput(field, value, accepted)
        return float(number)

    return check


def boolean(field: str, value: object) -> bool:
    """true or false, also as the strings that a command line passes."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise BadInput(field, value, "true or false")


def text(field: str, value: object) -> str:
    """A string that is not empty and has no control characters."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise BadInput(field, value, "a string that is not empty")
    return value


def one_of(*names: str) -> Check:
    """One of the given strings."""

    def check(field: str, value: object) -> str:
        if value not in names or not isinstance(value, str):
            raise BadInput(field, value, "one of " + ", ".join(names))
        return value

    return check


def optional(check: Check) -> Check:
    """None (also YAML's empty value), or what `check` takes."""
    return lambda field, value: None if value is None else check(field, value)


def list_of(check: Check, least: int = 0) -> Check:
    """A tuple of checked items, at least `least` of them; a lone string is refused, so "ab" never becomes a, b."""

    def run(field: str, value: object) -> tuple:
        if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
            raise BadInput(field, value, "a list")
        items = tuple(check(f"{field}[{i}]", v) for i, v in enumerate(value))
        if len(items) < least:
            raise BadInput(field, value, f"a list of at least {least}")
        return items

    return run


def mapping(field: str, value: object, known: dict[str, Check]) -> dict[str, object]:
    """Check a dict against `known` names; unknown names are refused, absent ones stay absent."""
    if not isinstance(value, dict):
        raise BadInput(field or "parameters", value, "a mapping of names to values")
    out = {}
    for name, item in value.items():
        path = f"{field}.{name}" if field else str(name)
        if name not in known:
            raise BadInput(path, item, "one of the fields " + ", ".join(known))
        out[name] = known[name](path, item)
    return out


def _number(value: object) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value) if isinstance(value, (float, str)) else None
    except ValueError:
        return None
    return None if number is None or number != number or number in (float("inf"), float("-inf")) else number
