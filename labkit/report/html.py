"""Executed notebooks into one offline HTML file: plotly.js once, no outside request, no room for a script.

Every output is either rendered by the lab or escaped. HTML in cells passes an allow-list, the page's own script carries
a nonce, and the page's Content-Security-Policy forbids every address outside the file.
"""

import base64
import html
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import disk
from labkit.checks.traps import TRAPS
from labkit.engines.secrets import hide_text
from labkit.errors import SECRET_NAME, BadInput
from labkit.report import page
from labkit.report.tables import flat, folded, for_readers, inside, table
from labkit.report.verdict import Found, behind, card, records_of

if TYPE_CHECKING:
    import nbformat

PLOTLY_MIME = "application/vnd.plotly.v1+json"
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
STATE_MIME = "application/vnd.jupyter.widget-state+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def notebooks_of(run: str | Path) -> list[Path]:
    """The executed notebooks of a run directory in order of name, or the one notebook given. Raises BadInput."""
    path = Path(run)
    if path.suffix == ".ipynb" and path.is_file():
        return [path]
    found = sorted(path.glob("*.ipynb")) if path.is_dir() else []
    if not found:
        raise BadInput("run", str(run), "a run directory that holds executed notebooks, or one .ipynb file")
    return found


def write(run: str | Path, destination: str | Path | None = None) -> Path:
    """Write the report of a run directory or a single notebook and return its path.

    Default place: `report.html` in the run directory, or beside the notebook under its name. Raises BadInput when there
    is no notebook, one cannot be read, or the folder is missing; disk.NoRoom.
    """
    sources = notebooks_of(run)
    beside = Path(run).with_suffix(".html") if Path(run).is_file() else Path(run) / "report.html"
    target = disk.place(destination or beside)
    shown = render([(p.stem, _read(p)) for p in sources], records_of(run))
    disk.write_text(target, shown, "the notebooks and records are kept")
    return target


def _read(path: Path) -> "nbformat.NotebookNode":
    from labkit.report.quick import nbformat  # here: a kernel that writes no report need not load it

    try:
        return nbformat.read(path, as_version=4)
    except Exception as e:  # nbformat raises several kinds for a damaged file
        raise BadInput("notebook", str(path), f"a notebook that nbformat can read ({type(e).__name__})") from None


def render(notebooks: "list[tuple[str, nbformat.NotebookNode]]", records: Sequence[Found] = ()) -> str:
    """One HTML document from (name, notebook) pairs, led by what the records say in short."""
    nonce = secrets.token_urlsafe(16)
    figures: list[dict] = []
    anchors = {name: f"nb-{_slug(name)}" for name, _ in notebooks}
    records, titles = list(records), [_title(name, nb) for name, nb in notebooks]
    contents = list(zip(anchors.values(), titles, strict=True))
    sections = [_section(name, nb, figures, anchors) for name, nb in notebooks]
    if records:
        sections.append(
            f'<section class="notebook" id="behind"><h2>How it was measured</h2>{behind(records)}</section>'
        )
        contents.append(("behind", "How it was measured"))
    sections.append(_traps())
    contents.append(("traps", "Appendix: silent failures, and what catches each"))
    return page.document(
        title=titles[0] if len(titles) == 1 else "Decoding lab: report of a run",
        heading=len(titles) > 1,
        lead=card(records),
        contents=contents,
        body="\n".join(sections),
        figures=figures,
        nonce=nonce,
    )


def _traps() -> str:
    """The appendix: every silent failure that the lab knows, as `labkit traps` lists them."""
    rows = [(f"{t.number}.", t.name, t.shows, t.catches) for t in TRAPS]
    listed = table(["", "trap", "how it shows", "what catches it"], rows)
    fold = folded("Appendix: silent failures, and what catches each", listed)
    return f'<section class="notebook" id="traps">{fold}</section>'


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _title(name: str, nb: "nbformat.NotebookNode") -> str:
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            found = re.search(r"^#\s+(.+)$", cell.source, re.M)
            if found:
                return found.group(1).strip()
    return name


def _section(name: str, nb: "nbformat.NotebookNode", figures: list[dict], anchors: dict[str, str]) -> str:
    parts = [f'<section class="notebook" id="nb-{_slug(name)}">']
    state = nb.metadata.get("widgets", {}).get(STATE_MIME, {}).get("state", {})
    shown = False
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            prose = inside(page.markdown(for_readers(cell.source)), anchors)
            parts.append(f'<div class="prose">{prose}</div>')
            if not shown:  # what this run was given stands right under the question
                parts.append(_parameters(nb))
                shown = True
        elif cell.cell_type == "code":
            tags = cell.metadata.get("tags", [])
            if not {"parameters", "injected-parameters"} & set(tags) and cell.source.strip():
                parts.append(folded("code", f"<pre>{html.escape(hide_text(cell.source))}</pre>", "code"))
            parts += [inside(_output(o, state, figures), anchors) for o in merged(cell.get("outputs", []))]
    if not shown:
        parts.insert(1, _parameters(nb))
    return "\n".join([*parts, "</section>"])


def _parameters(nb: "nbformat.NotebookNode") -> str:
    """The run's parameters: the notebook's defaults with what papermill put in, as a table."""
    record = nb.metadata.get("papermill", {})
    given = record.get("parameters", {})
    rows = flat({**_defaults(nb), **given})
    if not rows:
        return ""
    when = str(record.get("start_time", ""))[:19].replace("T", " ")
    took = record.get("duration")
    note = f"Run {when} UTC" + (f", {took:.0f} s" if isinstance(took, (int, float)) else "") if when else "Parameters"
    return folded(note, table(["parameter", "value"], rows), "parameters")


def _defaults(nb: "nbformat.NotebookNode") -> dict:
    """Literal values of the cell tagged `parameters`; what is no literal is left out."""
    import ast

    out = {}
    for cell in nb.cells:
        if cell.cell_type != "code" or "parameters" not in cell.metadata.get("tags", []):
            continue
        try:
            lines = ast.parse(cell.source).body
        except SyntaxError:
            continue
        for line in lines:
            targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", [])
            try:
                value = ast.literal_eval(line.value)
            except (ValueError, AttributeError, TypeError):
                continue
            out |= {t.id: value for t in targets if isinstance(t, ast.Name)}
    return out


def merged(outputs: list) -> list:
    """Outputs with neighbouring pieces of one stream joined: a kernel cuts them wherever it flushes."""
    out: list = []
    for output in outputs:
        last = out[-1] if out else {}
        pair = (last, output)
        if all(o.get("output_type") == "stream" for o in pair) and last.get("name") == output.get("name"):
            out[-1] = {**last, "text": "".join(last["text"]) + "".join(output["text"])}
        else:
            out.append(output)
    return out


def _output(output: dict, state: dict, figures: list[dict]) -> str:
    kind = output.get("output_type")
    if kind == "stream":
        stream = "stderr" if output.get("name") == "stderr" else "stdout"
        return f'<pre class="{stream}">{_plain(output.get("text", ""))}</pre>'
    if kind == "error":
        trace = "\n".join(output.get("traceback", [])) or f"{output.get('ename')}: {output.get('evalue')}"
        head = html.escape(_ANSI.sub("", f"{output.get('ename')}: {output.get('evalue')}"))
        details = f"<details><summary>trace</summary><pre>{_plain(trace)}</pre></details>"
        return f'<div class="error" role="alert"><p>{head}</p>{details}</div>'
    return _data(output.get("data", {}), output.get("metadata", {}), state, figures)


def _plain(text: str | list) -> str:
    return html.escape(hide_text(_ANSI.sub("", "".join(text))))


def _data(data: dict, metadata: dict, state: dict, figures: list[dict]) -> str:
    """The richest form that works offline."""
    if PLOTLY_MIME in data:
        return figure(data, figures)
    if WIDGET_MIME in data:
        return _widget(data, state)
    if "text/html" in data:
        return f'<div class="output">{page.clean("".join(data["text/html"]))}</div>'
    if "text/markdown" in data:
        return f'<div class="prose">{page.markdown("".join(data["text/markdown"]))}</div>'
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            alt = html.escape(str(metadata.get(kind, {}).get("alt", "picture")), quote=True)
            return f'<img alt="{alt}" src="data:{kind};base64,{_base64(data[kind])}">'
    return f"<pre>{_plain(data['text/plain'])}</pre>" if "text/plain" in data else ""


def _base64(text: str | list) -> str:
    """The data again, or nothing when it is no base64: it goes into an attribute."""
    joined = re.sub(r"\s", "", "".join(text))
    try:
        base64.b64decode(joined, validate=True)
    except ValueError:
        return ""
    return joined


def figure(data: dict, figures: list[dict]) -> str:
    """A figure's place on the page with its description; data: MIME data of a plotly figure, added to `figures`."""
    spec = data[PLOTLY_MIME]
    layout = spec.get("layout", {})
    alt = (layout.get("meta") or {}).get("alt") or _plain(data.get("text/plain", "figure"))
    number = len(figures)
    figures.append({"data": spec.get("data", []), "layout": layout})
    picture = ""
    if "image/png" in data:
        picture = f'<noscript><img alt="" src="data:image/png;base64,{_base64(data["image/png"])}"></noscript>'
    shown = html.escape(str(alt))
    height = int(layout.get("height") or 400)
    return (
        f'<figure><div class="plot" id="figure-{number}" role="img" aria-label="{html.escape(str(alt), quote=True)}"'
        f' style="min-height:{height}px"></div>{picture}<figcaption>{shown}</figcaption></figure>'
    )


def _widget(data: dict, state: dict) -> str:
    """Values of the widgets under this view as a table; the view's plain text when the notebook kept no state."""
    root = data[WIDGET_MIME].get("model_id", "")
    rows, seen, todo = [], set(), [root]
    while todo:
        model = todo.pop(0)
        if model in seen or model not in state:
            continue
        seen.add(model)
        fields = state[model].get("state", {})
        label = fields.get("description")
        if label and fields.get("description_allow_html"):  # a menu's label carries its tooltip
            label = html.unescape(re.sub(r"<[^>]*>", "", str(label)))
        if label and "value" in fields and not SECRET_NAME.search(str(label)):
            rows.append((label, fields["value"]))
        children = fields.get("children", [])
        todo = [c.removeprefix("IPY_MODEL_") for c in children if isinstance(c, str)] + todo
    if rows:
        return table(["setting", "value"], rows)
    return f"<pre>{_plain(data['text/plain'])}</pre>" if "text/plain" in data else ""
