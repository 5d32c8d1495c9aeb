"""A real JupyterLab on a copy of the notebooks, driven through a real Chromium. Helpers of the tests beside it."""

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
_CELLS_DONE = """() => {
  const w = window.jupyterapp.shell.currentWidget;
  const cells = w.content.model.sharedModel.cells.filter(c => c.cell_type === 'code' && c.source.trim());
  return cells.every(c => c.execution_count !== null) && w.sessionContext.session.kernel.status === 'idle';
}"""
_ERRORS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells
  .flatMap(c => c.outputs || []).filter(o => o.output_type === 'error').map(o => o.ename + ': ' + o.evalue)"""
_READY = """() => {
  const w = window.jupyterapp && window.jupyterapp.shell && window.jupyterapp.shell.currentWidget;
  const k = w && w.sessionContext && w.sessionContext.session && w.sessionContext.session.kernel;
  return !!(k && k.status === 'idle' && w.content.widgets && w.content.widgets.length);
}"""
TOP = "document.querySelector('.jp-WindowedPanel-outer')"  # what scrolls a notebook
# What sticks out of the notebook at its right, and what can only be read by scrolling sideways. Not counted: cells of
# code, and the table of all settings, which scrolls inside itself.
_OUT = """() => {
  const out = [], right = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect().right;
  const say = (e, what) => out.push(`${what}: ${e.tagName} ${e.className} ${(e.innerText || '').slice(0, 40)}`);
  for (const e of document.querySelectorAll('.jp-OutputArea-output, .jp-OutputArea-output *, .jp-RenderedMarkdown *')) {
    if (e.closest('.dt-container') || (e.closest('svg') && e.tagName !== 'svg')) continue;
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || !box.height) continue;
    if (box.right > right + 2) say(e, 'sticks out');
    if (['auto', 'scroll'].includes(style.overflowX) && e.clientWidth && e.scrollWidth > e.clientWidth + 2)
      say(e, 'scrolls sideways');
  }
  return out; }"""


@dataclass
class Lab:
    """A running JupyterLab. root: its folder (a copy: notebooks/, params/)."""

    url: str
    token: str
    root: Path
    log: Path


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator:
    """A browser with one profile for all its pages: JupyterLab's scripts are fetched and compiled once."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        window = {"width": 1300, "height": 1600}
        opened = p.chromium.launch_persistent_context(profile, executable_path=CHROMIUM, args=FLAGS, viewport=window)
        yield opened
        opened.close()


@contextlib.contextmanager
def jupyterlab(work: Path, *, parameters: dict[str, str], theme: str = "JupyterLab Light") -> Iterator[Lab]:
    """Start JupyterLab on a copy of the notebooks whose parameters cell has these lines replaced (name -> literal)."""
    root = work / "root"
    shutil.copytree(ROOT / "notebooks", root / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    shutil.copytree(ROOT / "params", root / "params")
    for notebook in (root / "notebooks").glob("*.ipynb"):
        notebook.write_text(with_parameters(notebook.read_text(encoding="utf-8"), parameters), encoding="utf-8")
    settings = work / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    (settings / "themes.jupyterlab-settings").write_text(f'{{"theme": "{theme}"}}')
    hidden = ("JPY_SESSION_NAME", "LABKIT_LIVE", "LABKIT_STATIC")
    env = {k: v for k, v in os.environ.items() if k not in hidden} | {
        "JUPYTER_CONFIG_DIR": str(work / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(work / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(work / "workspaces"),
        "JUPYTER_RUNTIME_DIR": str(work / "runtime"),
        "LABKIT_RUNTIME_DIR": str(work / "lock"),
    }
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    token, log = secrets.token_hex(8), work / "lab.log"
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
    ]
    with open(log, "w") as out:
        server = subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, token, server, log)
        yield Lab(url, token, root, log)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def with_parameters(text: str, parameters: dict[str, str]) -> str:
    """Replace the defaults of `name: type = default  # help` lines inside the notebook's JSON."""
    import json

    document = json.loads(text)
    for cell in document["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            source = "".join(cell["source"])
            for name, literal in parameters.items():
                source = re.sub(rf"^({name}: [^=]+= )[^#\n]*?(\s+#|$)", rf"\g<1>{literal}\2", source, flags=re.M)
            cell["source"] = source
    return json.dumps(document)


def _wait_for(url: str, token: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(log.read_text()[-2000:])
        try:
            urllib.request.urlopen(f"{url}/api?token={token}", timeout=1)
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("JupyterLab did not answer in a minute")


@dataclass
class Page:
    """One notebook open in a browser tab. errors: what the console called an error."""

    tab: object
    lab: Lab
    name: str
    errors: list[str] = field(default_factory=list)

    def open(self) -> None:
        self.tab.on("console", lambda m: self.errors.append(m.text[:300]) if m.type == "error" else None)
        self.tab.on("pageerror", lambda e: self.errors.append(str(e)[:300]))
        address = f"{self.lab.url}/doc/tree/notebooks/{self.name}.ipynb?token={self.lab.token}"
        self.tab.goto(address, wait_until="domcontentloaded")
        self.tab.wait_for_function(_READY, timeout=90_000)

    def run_all(self, timeout_s: float = 90) -> list[str]:
        """Run all cells; the errors that cells raised."""
        self.command("notebook:run-all-cells")
        self.tab.wait_for_function(_CELLS_DONE, timeout=timeout_s * 1000)
        return self.tab.evaluate(_ERRORS)

    def command(self, name: str) -> None:
        self.tab.evaluate("name => window.jupyterapp.commands.execute(name)", name)

    def traces(self, figure: int = 0) -> list[dict]:
        """Name and y of each trace of the figure at this place on the page."""
        return self.tab.evaluate(
            """i => { const g = document.querySelectorAll('.js-plotly-plot')[i];
            return g && g.data ? g.data.map(t => ({name: t.name || '', y: Array.from(t.y || [])})) : []; }""",
            figure,
        )

    def measured(self, figure: int = 0) -> list[dict]:
        """Traces of the figure that are measured and have a point; not the hollow ones beside the comparison."""
        found = [t for t in self.traces(figure) if "measured" in t["name"] and t["y"]]
        return [t for t in found if "not compared" not in t["name"]]

    def until(self, what, *, timeout_s: float = 60, note: str = "") -> object:
        """Poll until what() is true; it and its value are returned. Raises AssertionError with the page's notes."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            value = what()
            if value:
                return value
            self.tab.wait_for_timeout(150)
        raise AssertionError(f"{note or 'condition'} did not come true; the page says: {self.notes()}")

    def notes(self) -> list[str]:
        """What the panel says: notes and alerts."""
        return self.tab.evaluate(
            """() => [...document.querySelectorAll('.labkit-note, .labkit-log, .labkit-alert')]
            .map(e => e.innerText).filter(t => t)"""
        )

    def record(self, selector: str):
        """Note each text that an element of this kind shows from now on, and how high it is: also one that is gone
        before a test looks. Call what is returned for [(text, pixels), ...]."""
        self.tab.evaluate(
            """selector => { const seen = window.labkitSeen = [];
            const look = () => { for (const e of document.querySelectorAll(selector)) {
              const last = seen[seen.length - 1], now = [e.innerText, e.getBoundingClientRect().height];
              if (now[1] && (!last || last[0] !== now[0] || last[1] !== now[1])) seen.push(now); } };
            new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
            }""",
            selector,
        )
        return lambda: self.tab.evaluate("() => window.labkitSeen")

    def press(self, button: str) -> None:
        """Click a panel's button by its words, once the kernel has heard of everything before it: a busy kernel gets a
        slider's last move later than a click."""
        for _ in range(2):
            self.tab.wait_for_timeout(150)
            self.tab.wait_for_function(_READY, timeout=90_000)
        exact = re.compile(rf"^\s*{re.escape(button)}\s*$")
        self.tab.locator("button.jupyter-button").filter(has_text=exact).first.click()

    def unfold(self, title: str) -> None:
        """Open a fold of a panel by its title."""
        self.tab.locator(".jupyter-widget-Collapse-header", has_text=title).first.click()

    def occupy(self, seconds: float) -> None:
        """Keep the kernel busy, without waiting for it."""
        self.tab.evaluate(
            """code => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
            .requestExecute({code, store_history: false}); }""",
            f"import time; time.sleep({seconds})",
        )

    def locked(self, button: str) -> bool:
        """Is a panel's button greyed out?"""
        exact = re.compile(rf"^\s*{re.escape(button)}\s*$")
        return self.tab.locator("button.jupyter-button").filter(has_text=exact).first.is_disabled()

    def slider(self, label: str):
        """The handle of a slider, by its label."""
        row = self.tab.locator(".widget-slider, .jupyter-widget-slider").filter(has_text=label)
        return row.locator(".noUi-handle").first

    def walk(self) -> Iterator[None]:
        """From the top to the end, a view at a time: JupyterLab takes what is far from the view out of the page."""
        self.tab.evaluate(f"() => {TOP}.scrollTo(0, 0)")
        for _ in range(60):
            self.tab.wait_for_timeout(600)
            yield
            moved = "e.scrollTop; e.scrollBy(0, e.clientHeight - 150); return e.scrollTop > before;"
            if not self.tab.evaluate(f"() => {{ const e = {TOP}, before = {moved} }}"):
                return

    def sideways(self) -> list[str]:
        """What in this view is too wide for it."""
        return self.tab.evaluate(_OUT)

    def in_view(self, button: str) -> bool:
        """Does a panel's button stand within the notebook's view?"""
        exact = re.compile(rf"^\s*{re.escape(button)}\s*$")
        box = self.tab.locator("button.jupyter-button").filter(has_text=exact).first.bounding_box()
        top, bottom = self.tab.evaluate(
            f"() => {{ const b = {TOP}.getBoundingClientRect(); return [b.top, b.bottom]; }}"
        )
        return box is not None and top <= box["y"] and box["y"] + box["height"] <= bottom

    def shut_down(self) -> None:
        """End the notebook's kernel, and its engines with it: the next notebook may start its own."""
        self.tab.evaluate("() => window.jupyterapp.shell.currentWidget?.sessionContext.shutdown()")

    def settle(self) -> None:
        """Leave without the question whether to save."""
        self.tab.evaluate(
            """() => { const w = window.jupyterapp && window.jupyterapp.shell.currentWidget;
            if (w && w.context && w.context.model) w.context.model.dirty = false; }"""
        )
