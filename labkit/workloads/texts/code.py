"""Code-like text: small Python functions and classes over invented names; regular in shape, free in detail."""

from random import Random

from labkit.workloads.texts.lexicon import ACTIONS, FIELDS, THINGS, invented

_OPS = ("+", "-", "*", "//", "%")
_COMPARE = ("<", ">", "<=", ">=", "==", "!=")


def _condition(rng: Random, names: list[str]) -> str:
    left = rng.choice(names)
    right = rng.choice(names) if rng.random() < 0.3 else str(rng.randrange(0, 100))
    return rng.choice(
        (
            f"{left} {rng.choice(_COMPARE)} {right}",
            f"len({left}) {rng.choice(_COMPARE)} {rng.randrange(10)}",
            f"{left} is None",
            f"not {left}",
            f"isinstance({left}, {rng.choice(('int', 'str', 'list', 'dict'))})",
        )
    )


def _expression(rng: Random, names: list[str]) -> str:
    a, b = rng.choice(names), rng.choice(names)
    return rng.choice(
        (
            f"{a} {rng.choice(_OPS)} {rng.randrange(1, 50)}",
            f"{a} {rng.choice(_OPS)} {b}",
            f"len({a})",
            f"max({a}, {b})",
            f"min({a}, {rng.randrange(100)})",
            f"{a}[{rng.randrange(4)}]",
            f"sorted({a})",
            f"[x for x in {a} if x {rng.choice(_COMPARE)} {rng.randrange(20)}]",
            f"sum({a})",
            f"str({a})",
            f'{a}.get("{rng.choice(FIELDS)}", {rng.randrange(10)})',
            f"{rng.choice(ACTIONS)}_{rng.choice(THINGS)}({a})",
        )
    )


def _statement(rng: Random, names: list[str], depth: int, indent: str) -> list[str]:
    inner = indent + "    "
    shape = rng.randrange(9) if depth < 2 else rng.randrange(5)
    if shape <= 2:
        fresh = rng.choice((rng.choice(FIELDS), f"{rng.choice(ACTIONS)}_{rng.choice(FIELDS)}", rng.choice(THINGS)))
        line = f"{indent}{fresh} = {_expression(rng, names)}"
        names.append(fresh)
        return [line]
    if shape == 3:
        return [f"{indent}{rng.choice(names)} {rng.choice(('+=', '-=', '*='))} {rng.randrange(1, 20)}"]
    if shape == 4:
        return [f"{indent}{rng.choice(names)}.append({rng.choice(names)})"]
    if shape == 5:
        lines = [f"{indent}if {_condition(rng, names)}:"] + _statement(rng, names, depth + 1, inner)
        return lines + ([f"{indent}else:"] + _statement(rng, names, depth + 1, inner) if rng.random() < 0.4 else [])
    if shape == 6:
        item = rng.choice(("item", "row", "x", "key", "part"))
        body = [s for _ in range(rng.choice((1, 2))) for s in _statement(rng, names + [item], depth + 1, inner)]
        return [f"{indent}for {item} in {rng.choice(names)}:"] + body
    if shape == 7:
        return [
            f"{indent}for i in range({rng.choice(names) if rng.random() < 0.4 else rng.randrange(2, 64)}):"
        ] + _statement(rng, names + ["i"], depth + 1, inner)
    return [
        f"{indent}if {_condition(rng, names)}:",
        f'{inner}raise ValueError("{rng.choice(FIELDS)} must be {rng.choice(("positive", "set", "a list", "known"))}")',
    ]


def _function(rng: Random, name: str, arguments: list[str], indent: str = "", first: str = "") -> list[str]:
    names = list(arguments)
    signature = ", ".join(([first] if first else []) + arguments)
    lines = [f"{indent}def {name}({signature}):"]
    if rng.random() < 0.6:
        action, thing = (name.split("_") + ["items"])[:2]
        lines.append(f'{indent}    """{action.capitalize()} the {thing} of {" and ".join(arguments)}."""')
    for _ in range(rng.randrange(2, 6)):
        lines += _statement(rng, names, 0, indent + "    ")
    return lines + [f"{indent}    return {_expression(rng, names) if rng.random() < 0.5 else rng.choice(names)}"]


def code(rng: Random) -> tuple[str, str]:
    """-> (request, source text)."""
    arguments = rng.sample(FIELDS, rng.choice((1, 2, 2, 3)))
    name = f"{rng.choice(ACTIONS)}_{rng.choice(THINGS)}"
    if rng.random() < 0.65:
        count = rng.choice((1, 1, 2, 3))
        names = [name] + [f"{rng.choice(ACTIONS)}_{rng.choice(THINGS)}" for _ in range(count - 1)]
        request = (
            f"Write Python functions {', '.join(names)}."
            if count > 1
            else f"Write a Python function {name}({', '.join(arguments)})."
        )
        blocks = [_function(rng, n, arguments if i == 0 else rng.sample(FIELDS, 2)) for i, n in enumerate(names)]
        return request, "\n\n\n".join("\n".join(b) for b in blocks)
    title = invented(rng).capitalize() + rng.choice(THINGS).capitalize()
    methods = rng.sample(ACTIONS, rng.randrange(1, 4))
    lines = [f"class {title}:", f"    def __init__(self, {', '.join(arguments)}):"]
    lines += [f"        self.{a} = {a}" for a in arguments]
    for m in methods:
        lines += [""] + _function(rng, m, rng.sample(FIELDS, 1), "    ", "self")
    return f"Write a Python class {title} with {', '.join(arguments)} and methods {', '.join(methods)}.", "\n".join(
        lines
    )
