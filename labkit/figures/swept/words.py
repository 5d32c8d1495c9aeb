"""Words of a sweep's figures: what a configuration sets, its hover text, names that fit at an axis."""

from collections.abc import Mapping, Sequence

from labkit.figures import marks
from labkit.measure.sweep import effects as found

Row = Mapping[str, object]
SPEED = "times faster than the block's baseline"


def label(row: Row) -> str:
    """What a configuration sets, short."""
    return ", ".join(f"{name.rpartition('.')[2]} {found.value_of(row, name)}" for name in row["fields"])


def hover(row: Row) -> str:
    lines = [f"<b>{row['config']}</b>", *(f"{n}: {found.value_of(row, n)}" for n in row["fields"])]
    lines += [f"x{row['speedup']:.3f}{ends(row, 'speedup', '.3f')} ◇", f"TPOT {1e3 * row['tpot_s']:.3f} ms ●"]
    if row.get("accept_length"):
        lines.append(f"a {row['accept_length']:.2f} ●" + (f", c {row['cost']:.2f} ◇" if row.get("cost") else ""))
    if row.get("accuracy") is not None:
        lines.append(f"accuracy {row['accuracy']:.0%}{ends(row, 'accuracy', '.0%')} ●")
    return "<br>".join(plain(line) if i else line for i, line in enumerate(lines))


def ends(row: Row, name: str, spec: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return "" if low is None else f" [{low:{spec}}, {high:{spec}}]"


def plain(text: str) -> str:
    """Text for plotly's small HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def axis(name: str) -> str:
    short = name.rpartition(".")[2]
    return short if len(short) <= 24 else f"{short[:23]}…"


def bars(rows: Sequence[Row], name: str, scale: float = 1.0) -> dict | None:
    ends = [(r[name], r.get(f"{name}_low"), r.get(f"{name}_high")) for r in rows]
    return marks.bars(ends, scale=scale, thickness=1.5, width=4)
