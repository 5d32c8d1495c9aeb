"""The offline page around a report: typography, light and dark, plotly once, and the filters for HTML and Markdown."""

import html
import json
from functools import cache
from pathlib import Path

_TAGS = set(
    "a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure h1 h2 h3 h4 h5 h6"
    " hr i img kbd li meter ol p pre s small span strong sub summary sup table tbody td tfoot th thead tr tt u ul var"
    " wbr".split()
)
_ATTRIBUTES = {
    "*": {"class", "title", "role", "aria-label", "colspan", "rowspan", "scope", "open"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "meter": {"value", "min", "max"},
}
_PICTURES = ("data:image/png;base64,", "data:image/jpeg;base64,")


def clean(text: str) -> str:
    """HTML through an allow-list: no script, style, handler or form; links stay, pictures only as data."""
    import nh3

    def kept(tag: str, name: str, value: str) -> str | None:
        fits = value.startswith(_PICTURES) if name == "src" else not (name == "href" and value.startswith("data:"))
        return value if fits else None

    return nh3.clean(
        text,
        tags=_TAGS,
        clean_content_tags={"script", "style"},
        attributes=_ATTRIBUTES,
        attribute_filter=kept,
        url_schemes={"http", "https", "data", "mailto"},
        link_rel="noreferrer",
    )


def markdown(text: str) -> str:
    """Markdown with tables to clean HTML."""
    import mistune

    render = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])
    return clean(str(render(text)))


def document(
    *,
    title: str,
    heading: bool,
    lead: str,
    contents: list[tuple[str, str]],
    body: str,
    figures: list[dict],
    nonce: str,
) -> str:
    """The whole page. heading: show the title above all (a single notebook has its own); lead: the card above the
    contents; contents: (anchor, title) of each section; figures: plotly data and layout in order."""
    from labkit.figures import fit_js
    from labkit.figures.theme import THEME_CSS

    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:;"
        " font-src data:; base-uri 'none'; form-action 'none'"
    )
    links = "".join(f'<li><a href="#{html.escape(a, quote=True)}">{html.escape(t)}</a></li>' for a, t in contents)
    nav = f"<nav aria-label='contents'><ol>{links}</ol></nav>" if contents else ""
    top = f"<h1>{html.escape(title)}</h1>" if heading else ""
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{_file("report.css")}{THEME_CSS}</style>
</head>
<body>
<button id="theme" type="button">light / dark</button>
<main>{top}{lead}{nav}
{body}
</main>
<script type="application/json" id="figures">{_json(figures)}</script>
{_plotly(nonce) if figures else ""}
<script nonce="{nonce}">{fit_js()}{_file("report.js")}</script>
</body>
</html>
"""


@cache
def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _json(figures: list[dict]) -> str:
    """JSON that cannot end the script element that holds it."""
    return json.dumps(figures).replace("<", "\\u003c").replace(">", "\\u003e")


def _plotly(nonce: str) -> str:
    from plotly.offline import get_plotlyjs

    return f'<script nonce="{nonce}">{get_plotlyjs()}</script>'
