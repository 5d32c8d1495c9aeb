"""Tables and links of a report: cells are escaped, no secret is shown, no link leads from the file to a folder."""

import html
import json
import re

from labkit.engines.secrets import hide, hide_text
from labkit.errors import SECRET_NAME
from labkit.fields import NOT_SHOWN

_LINK = re.compile(r'<a\b([^>]*?)\shref="([^"]*)"([^>]*)>(.*?)</a>', re.S)
_HARMFUL = "#harmful-link"  # what the Markdown reader makes of an address that it refuses
_LIVE = re.compile(r'<span\s+class="labkit-live">.*?</span>', re.S)


def table(head: list[str], rows: list[tuple], kind: str = "") -> str:
    """A table of plain text: every cell is escaped and scrubbed."""
    top = "".join(f"<th>{html.escape(str(h))}</th>" for h in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(hide_text(str(v)))}</td>" for v in row) + "</tr>" for row in rows
    )
    named = f' class="{html.escape(kind, quote=True)}"' if kind else ""
    return f"<table{named}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def folded(title: str, body: str, kind: str = "") -> str:
    """Details that are closed until somebody opens them; print opens them."""
    named = f' class="{kind}"' if kind else ""
    return f"<details{named}><summary>{html.escape(title)}</summary>{body}</details>"


def flat(values: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Nested parameters as (dotted name, text) rows; a value whose name says that it is a secret is not shown."""
    rows = []
    for name, value in values.items():
        path = f"{prefix}{name}"
        if SECRET_NAME.search(str(name)):
            rows.append((path, NOT_SHOWN))
        elif isinstance(value, dict) and value:
            rows += flat(value, path + ".")
        else:
            rows.append(
                (path, value if isinstance(value, str) else json.dumps(hide(value), ensure_ascii=False, default=str))
            )
    return rows


def inside(markup: str, anchors: dict[str, str]) -> str:
    """Clean HTML whose links work once the file is alone: a notebook of this report becomes its section, another
    relative link its words. anchors: file name without suffix -> id of its section."""

    def settled(found: re.Match) -> str:
        before, to, after, words = found.groups()
        if re.match(r"(https?|mailto):", to, re.I) or (to.startswith("#") and to != _HARMFUL):
            return found[0]
        name = re.sub(r"\.ipynb$", "", html.unescape(to).partition("#")[0].rpartition("/")[2])
        return f'<a{before} href="#{anchors[name]}"{after}>{words}</a>' if name in anchors else words

    return _LINK.sub(settled, markup)


def for_readers(markdown: str) -> str:
    """A notebook's prose without what only helps a person at the notebook: `<span class="labkit-live">...</span>`."""
    return _LIVE.sub("", markdown)
