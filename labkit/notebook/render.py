"""Tables and notes that panels show, as HTML (escaped) and as plain text."""

import html
import textwrap
from collections.abc import Sequence

from labkit.evidence import Evidence

# A line of a table: what, its value (evidence or words), a remark.
Line = tuple[str, "Evidence | str", str]

LONGEST = 60  # characters of a value that may stand in a column of plain text

STYLE = (
    # The class three times: JupyterLab's own rule, of two classes, aligns tables in outputs to the right.
    "<style>.labkit-table.labkit-table.labkit-table :is(td,th){text-align:left;padding:2px 14px 2px 0;max-width:34rem;"
    "vertical-align:top;line-height:1.4;white-space:pre-line}"
    ".labkit-table.labkit-table.labkit-table td.labkit-short{white-space:nowrap}"
    ".labkit-caution{border-left:3px solid #d55e00;padding:.1em 0 .1em .8em;margin:.4em 0;max-width:52rem;"
    "line-height:1.4}"
    # Where a table is narrow its remarks stand below their line, or their column would be one word wide.
    ".labkit-narrow{container-type:inline-size}@container (max-width:640px){.labkit-table.labkit-table.labkit-table "
    "thead{display:none}.labkit-table.labkit-table.labkit-table tr{display:grid;grid-template-columns:36% 33% 31%}"
    ".labkit-table.labkit-table.labkit-table td.labkit-short{white-space:normal}"
    ".labkit-table.labkit-table.labkit-table td:nth-child(4){grid-column:2/-1;max-width:none;opacity:.85}}"
    # Long lines go on below, indented: nothing is cut, and what is copied is the text as it is printed.
    "pre.labkit-block.labkit-block{font-size:12px;line-height:1.4;white-space:normal;word-break:normal}"
    ".labkit-block span{display:block;white-space:pre-wrap;padding-left:4ch;text-indent:-4ch;min-height:1.4em}"
    "[role=alert].labkit-alert{border-left:4px solid #cf222e;color:#cf222e;padding:.2em 0 .2em .8em;max-height:15em;"
    "overflow:auto;font-size:13px;white-space:pre-wrap}[data-jp-theme-light='false'] [role=alert].labkit-alert{"
    "color:#ff7b72}"
    # A widget without its kernel: the plain copy below it says it all.
    ".jp-OutputArea-child [data-mime-type='application/vnd.jupyter.widget-view+json']:not(:has(*)){display:none}"
    ".labkit-badge{display:inline-block;border-radius:8px;padding:1px 8px;font-size:12px;color:#fff;background:#1a7f37}"
    ".labkit-badge.labkit-noisy{background:#bc4c00}"
    # The end of the text shows, in a box that does not grow with it.
    ".labkit-writing{height:4.2em;overflow:hidden;display:flex;flex-direction:column;justify-content:flex-end;"
    "font-size:12px;line-height:1.4;border-left:2px solid var(--jp-border-color1,#ccc);padding-left:8px;"
    "overflow-wrap:anywhere}"
    # Whatever lies around the knobs must not clip them, or they cannot stay in view.
    ".jp-OutputArea-output:has(.labkit-run),.jp-OutputArea-child:has(.labkit-run),.jp-OutputArea:has(.labkit-run),"
    ".jp-Cell-outputWrapper:has(.labkit-run),.jp-Cell:has(.labkit-run),.labkit-run,.labkit-live,.labkit-desk"
    "{overflow:visible!important}.jp-Cell:has(.labkit-run){contain:none!important;content-visibility:visible!important}"
    ".labkit-live:has(.labkit-run){container-type:inline-size}"
    ".labkit-desk{display:grid!important;grid-template-columns:330px minmax(0,1fr);gap:16px;width:100%;"
    "align-items:start}"
    ".labkit-knobs{position:sticky!important;top:0;z-index:4;max-height:calc(100vh - 90px);overflow:auto!important;"
    "background:var(--jp-layout-color0,transparent)}"
    ".labkit-knobs>*{flex-shrink:0}"
    ".labkit-run .widget-html-content{line-height:1.4}"
    ".labkit-knobs :is(.widget-inline-hbox,.jupyter-widget-inline-hbox){max-width:340px;"
    "width:calc(100% - 4px)!important}"
    ".labkit-knobs :is(.widget-html,.jupyter-widget-html){max-width:none}"
    "@container (max-width:760px){.labkit-desk{grid-template-columns:minmax(0,1fr)}"
    ".labkit-knobs{max-height:44vh;border-bottom:1px solid var(--jp-border-color1,#ccc)}"
    ".labkit-sliders{display:grid!important;grid-template-columns:repeat(auto-fill,minmax(235px,1fr))}}"
    ".labkit-note{opacity:.8;max-width:52rem;line-height:1.4}.labkit-log{max-height:15em;overflow:auto;font-size:12px}</style>"
)


DOUBT = "⚠ doubtful: see the warning"


def value(v: "Evidence | str") -> str:
    """As a table shows it. Times below a second are in ms throughout: one unit in a column can be compared by eye."""
    if isinstance(v, Evidence):
        short = v.unit in ("s", "ms", "us") and 1e-5 <= v.si < 1
        return v.to("ms").quantity(".4g") if short else v.quantity()
    return v


def doubted(lines: "Sequence[Line]", doubtful: "Sequence[Evidence]") -> "list[Line]":
    """Lines, with a mark beside each number that is one of the doubtful ones or derived from one."""
    ids = {id(n) for n in doubtful}

    def rests(v: object) -> bool:
        return isinstance(v, Evidence) and (id(v) in ids or any(map(rests, v.inputs)))

    return [(what, v, "; ".join(filter(None, (DOUBT, remark))) if rests(v) else remark) for what, v, remark in lines]


def span(v: Evidence, spec: str = ".3f") -> str:
    """The interval in words, also when there is none."""
    return "no interval yet" if v.low is None else f"interval {v.low:{spec}} to {v.high:{spec}}"


def badge(v: "Evidence | str") -> str:
    return v.badge() if isinstance(v, Evidence) else ""


def table(lines: Sequence[Line], head: tuple[str, str, str, str] = ("", "value", "evidence", "")) -> str:
    """Lines as an HTML table; evidence shows its tier in a column of its own and its formula on hover."""
    rows = []
    for what, v, remark in lines:
        tip = f"{v.formula or ''} [{v.source}]" if isinstance(v, Evidence) else ""
        short = " class='labkit-short'" if isinstance(v, Evidence) else ""
        cells = "".join(
            f"<td{c}>{html.escape(t)}</td>"
            for t, c in ((what, ""), (value(v), short), (badge(v), " class='labkit-short'"), (remark, ""))
        )
        rows.append(f'<tr title="{html.escape(tip, quote=True)}">{cells}</tr>')
    top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    made = f'<table class="labkit-table"><thead><tr>{top}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="labkit-narrow">{made}</div>'


def plain(lines: Sequence[Line], title: str = "") -> str:
    """Lines as text in columns, for a terminal and for a printed summary."""
    cells = [(what, value(v), badge(v), remark) for what, v, remark in lines]
    short = [c for c in cells if len(c[1]) <= LONGEST]
    widths = [max((len(c[i]) for c in short), default=0) for i in range(3)]
    rows = []
    for c in cells:
        if len(c[1]) <= LONGEST:
            rows.append("  ".join([*(c[i].ljust(widths[i]) for i in range(3)), c[3]]).rstrip())
        else:  # a text of its own: below its name, indented
            text = "\n".join(textwrap.fill(line, 96) for line in c[1].splitlines())
            rows += [f"{c[0]}  {c[3]}".rstrip(), textwrap.indent(text, "    ")]
    return "\n".join(([title, ""] if title else []) + rows)


def paragraphs(sentences: Sequence[str]) -> str:
    """Sentences as a list in HTML."""
    items = "".join(f"<li>{html.escape(s)}</li>" for s in sentences)
    return f"<ul class='labkit-note'>{items}</ul>" if items else ""


def cautions(sentences: Sequence[str]) -> str:
    """Why numbers may not be trusted, set apart from what they show."""
    lines = "<br>".join(html.escape(s) for s in sentences)
    return f"<div class='labkit-caution'><b>Before you trust this:</b><br>{lines}</div>" if lines else ""


def block(text: str) -> str:
    """Plain text in columns, as a page shows it."""
    lines = "".join(f"<span>{html.escape(line)}\n</span>" for line in text.splitlines())
    return f"<pre class='labkit-block'>{lines}</pre>"


def mime(text: str) -> dict[str, str]:
    """The same as MIME data: JupyterLab breaks plain text in the middle of a word."""
    return {"text/html": STYLE + block(text), "text/plain": text}


def note(text: str, kind: str = "") -> str:
    """One remark; kind "alert" for a failure, whose lines are kept."""
    if kind == "alert":
        return f'<pre role="alert" class="labkit-alert">{html.escape(text)}</pre>'
    return f"<span class='labkit-note' role='status'>{html.escape(text)}</span>"
