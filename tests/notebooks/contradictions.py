"""What an executed notebook says twice must be the same, and nothing that it says may be impossible.

Numbers are read where they stand as numbers: tables as text (name, value, tier), and each figure's description."""

import re

import nbformat

NUMBER = r"(-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)"
LINE = re.compile(rf"^(?P<what>\S.*?)\s{{2,}}{NUMBER}(?: \[[^]]*\])?(?: (?P<unit>\S+))?\s+[●◇]")
SAID = re.compile(r"\b([ac]) = (\d+\.\d\d)\b")
OF_PLANE = re.compile(r"([^;:]+): a (\d+\.?\d*), c (\d+\.?\d*), S (\d+(?:\.\d+)?)")
OF_TIMES = re.compile(r"([^;:]+?) measured ([\d.]+)[^;]*? (ms|us|s)\b")
OF_FLOORS = re.compile(r"byte floor of ([^;]+?) ([\d.]+)[^;]*? (ms|us|s)\b")
OF_SWEEP = re.compile(
    rf"^(c\d+)\s{{2,}}{NUMBER}(?: \[[^]]*\])?\s+{NUMBER}\s+{NUMBER}(?:\s+{NUMBER}\s+{NUMBER})?(?=\s)", re.M
)
EXTREMES = re.compile(r"(?:fastest|slowest) (c\d+) \(.*?\) x(\d+\.\d+)")
AGAIN = re.compile(r"(c\d+), (?:best|runner-up)[^:]*: x(\d+\.\d+) in the sweep, x(\d+\.\d+) on fresh prompts")
CALLED = re.compile(r"(c\d+) was fastest in the sweep \(x(\d+\.\d+)\); on fresh prompts x(\d+\.\d+)")
OF_EFFECT = re.compile(rf"^(\S+)\s{{2,}}(\S+(?: set)?)\s{{2,}}(\S+(?: set)?)\s{{2,}}{NUMBER} [\[(]", re.M)
RATIO = re.compile(r"(?:^|; |: )([^;:]+?) (\S+|not set) / (\S+?|not set): x(\d+\.\d+)")
SCALE = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def texts(nb: nbformat.NotebookNode) -> list[str]:
    """The plain text of every output."""
    shown = [o for c in nb.cells for o in c.get("outputs", [])]
    return [o.get("data", {}).get("text/plain") or o.get("text") or "" for o in shown]


def values(nb: nbformat.NotebookNode) -> dict[str, list[tuple[float, str]]]:
    """{name: [(value, unit)]} of all lines of tables that were measured or derived."""
    out: dict[str, list[tuple[float, str]]] = {}
    for text in texts(nb):
        for line in text.splitlines():
            if found := LINE.match(line):
                value = float(found[2].replace(",", ""))
                out.setdefault(found["what"], []).append((value, found["unit"] or ""))
    return out


def contradictions(nb: nbformat.NotebookNode) -> list[str]:
    """One sentence for each."""
    table, figures = values(nb), [t for t in texts(nb) if t.startswith("Figure: ")]
    return [
        *_floors(table, figures),
        *_laws(table),
        *_figures(table, figures),
        *_prose(nb, table),
        *_sweep(nb, figures),
    ]


def _near(a: float, b: float, share: float) -> bool:
    return abs(a - b) <= share * max(abs(a), abs(b)) + 1e-12


def _floors(table, figures) -> list[str]:
    """A token under its floor."""
    out = [f"TPOT over floor is {v}" for v, _ in table.get("TPOT over floor", []) if v < 1]
    for text in figures:
        floors = {n.strip(): float(v) * SCALE[u] for n, v, u in OF_FLOORS.findall(text)}
        for name, value, unit in OF_TIMES.findall(text.removeprefix("Figure: ")):
            name, took = name.split(": ")[-1].strip(), float(value) * SCALE[unit]
            if took < 0.995 * floors.get(name, 0.0):
                out.append(f"{name} takes {took} s, its floor is {floors[name]} s")
    return out


def _laws(table) -> list[str]:
    """S = a / c, and S the ratio of two times that stand beside it."""
    out = []
    for what, found in table.items():
        name = what.removeprefix("speed-up, ")
        if name == what or f"a, {name}" not in table or f"c, {name}" not in table:
            continue
        a, c, s = (table[w][0][0] for w in (f"a, {name}", f"c, {name}", what))
        if not _near(s, a / c, 0.01):
            out.append(f"{name}: S = {s}, but a / c = {a / c:.3f}")
        if len({v for v, _ in found}) > 1:
            out.append(f"{name}: two speed-ups, {found}")
    return out


def _figures(table, figures) -> list[str]:
    """a, c, S and TPOT of a figure are those of the table."""
    out = []
    for text in figures:
        for name, *seen in OF_PLANE.findall(text.removeprefix("Figure: ")):
            for letter, value in zip(("a", "c", "speed-up"), map(float, seen), strict=True):
                known = table.get(f"{letter}, {name.strip()}")
                if known and abs(known[0][0] - value) > 0.006:
                    out.append(f"{name.strip()}: {letter} is {value} in a figure and {known[0][0]} in the table")
        for name, value, unit in OF_TIMES.findall(text.removeprefix("Figure: ")):
            name = name.split(": ")[-1].strip()
            known = table.get(f"TPOT, {name}")
            if known and not _near(known[0][0] * SCALE.get(known[0][1], 1), float(value) * SCALE[unit], 0.01):
                out.append(f"{name}: TPOT is {value} {unit} in a figure and {known[0]} in the table")
    return out


def _prose(nb, table) -> list[str]:
    """An a or c in a sentence of the findings is one of the table, where the table has any."""
    known = {
        letter: [v for w, vs in table.items() if re.match(rf"{letter}(,| at )", w) for v, _ in vs] for letter in "ac"
    }
    out = []
    for cell in nb.cells:
        if cell.cell_type != "code" or ".findings()" not in cell.source:
            continue
        for o in cell.get("outputs", []):
            html = o.get("data", {}).get("text/html", "")
            prose = re.sub(r"<[^>]+>", " ", re.sub(r"<(table|style).*?</\1>", " ", html, flags=re.S))
            for letter, value in SAID.findall(prose):
                if known[letter] and not any(abs(k - float(value)) <= 0.006 for k in known[letter]):
                    out.append(f"a sentence has {letter} = {value}, the table {known[letter]}")
    return out


def _sweep(nb, figures) -> list[str]:
    """A sweep's table against its figures and sentences: S = a / c, extremes, effects, the best on fresh prompts."""
    said = "\n".join(t for t in texts(nb) if not t.startswith("Figure: "))
    shown, out = "\n".join(figures), []
    table: dict[str, float] = {}
    for name, s, _, _, a, c in OF_SWEEP.findall(said):
        if table.setdefault(name, float(s)) != float(s):
            out.append(f"{name}: two speed-ups, {table[name]} and {s}")
        if c and not _near(float(s), float(a) / float(c), 0.02):
            out.append(f"{name}: S = {s}, but a / c = {float(a) / float(c):.3f}")
    for name, s in EXTREMES.findall(shown):
        if abs(table.get(name, 0.0) - float(s)) > 0.006:
            out.append(f"{name}: x{s} in a figure and {table.get(name)} in the table")
    again = {name: (float(before), float(after)) for name, before, after in AGAIN.findall(shown)}
    for name, (before, _) in again.items():
        if abs(table.get(name, 0.0) - before) > 0.006:
            out.append(f"{name}: x{before} in the figure of the best and {table.get(name)} in the table")
    for name, *seen in CALLED.findall(said):
        if any(abs(float(x) - y) > 0.006 for x, y in zip(seen, again.get(name, (0.0, 0.0)), strict=True)):
            out.append(f"{name}: {seen} in a sentence and {again.get(name)} in the figure of the best")
    effects = {(f.rpartition(".")[2], v, w): float(r) for f, v, w, r in OF_EFFECT.findall(said)}
    for field, value, against, ratio in RATIO.findall(shown):
        known = effects.get((field, value, against))
        if known is None or abs(known - float(ratio)) > 0.002:
            out.append(f"{field} {value} / {against}: x{ratio} in a figure and {known} in the table")
    return out


def unstable(nb: nbformat.NotebookNode) -> tuple[set[str], set[str]]:
    """(measured arms, those of them that are called unstable), by the names of the figure of times."""
    arms = {
        name.split(": ")[-1].strip()
        for text in texts(nb)
        if text.startswith("Figure: Time per output token")
        for name, *_ in OF_TIMES.findall(text)
    }
    words = " ".join(texts(nb))
    return arms, {a for a in arms if re.search(rf"(^|[\s,:]){re.escape(a)}: unstable", words)}
