"""A sweep as one file: offline, escaped, without secrets, whole however the sweep stands."""

import copy
import re

import pytest
from sweeps import DOCUMENT, finished, made

from labkit.cli import main
from labkit.measure.sweep import points

EVIL = "<script>alert(1)</script><img src=https://example.com/x>"


def text_of(folder, capsys):
    assert main(["report", str(folder)]) == 0
    path = capsys.readouterr().out.strip()
    assert path == str(folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def test_one_file_that_asks_nobody_with_everything_in_it(tmp_path, capsys):
    text = text_of(made(tmp_path / "s"), capsys)
    assert text.count("plotly.js v") == 1 and "default-src 'none'" in text
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=[\"']?(https?:)?//", text)
    body = text.split("<main>")[1].split("</main>")[0]
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and body.count('class="plot"') == 6
    for name in points.read(DOCUMENT).measured:
        assert f"<summary>{name.name}: measured" in body
    assert "labkit ladder -f FILE" in body and "labkit.pocket --port 1" in body and "no best" in body


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_unfinished_sweep_has_a_report_too(tmp_path, capsys, count):
    lines = finished(points.read(DOCUMENT))[:count]
    text = text_of(made(tmp_path / "s", lines=lines, ended=False), capsys)
    assert "--resume" in text and f"{9 - count} still to come" in text


def test_hostile_words_are_text_and_secrets_are_not_there(tmp_path, capsys):
    document = copy.deepcopy(DOCUMENT)
    document["sweep"]["list"].append({"extra_args": [EVIL]})
    document["sweep"]["list"].append({"env.NOTE": EVIL})
    lines = finished(points.read(document))
    lines[0] |= {"command": f"run {EVIL} --api-key hunter2hunter2", "warnings": [EVIL]}
    lines[1] = {"config": "c002", "status": "failed", "reason": EVIL, "blocks": ["b"]}
    text = text_of(made(tmp_path / "s", document, lines=lines), capsys)
    body = text.split("<main>")[1].split("</main>")[0]
    assert "<script" not in body and "<img" not in body and "&lt;script&gt;" in body
    data = text.split('id="figures">')[1].split("</script>")[0]
    assert "<" not in data
    assert "hunter2hunter2" not in text
