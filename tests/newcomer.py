"""What a newcomer gets: `make run` in a fresh clone, in an environment of his own, and a look at what it left.

    python3 tests/newcomer.py --hide           no browser and no Arm tools can be found, installed or not
    python3 tests/newcomer.py --python python3.13 --short

Standard library only: it runs before anything is installed. Exit code 0 when everything is as it should be.
"""

import argparse
import contextlib
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HIDDEN = (
    "chrom*",
    "google-chrome*",
    "*msedge*",
    "microsoft-edge*",
    "brave*",
    "firefox*",
    "qemu*",
    "aarch64-*",
    "arm-*",
)
# What a shell of his would have: where packages come from and his language, nothing of this machine's tools.
KEPT = ("PIP_", "UV_", "SSL_CERT", "REQUESTS_CA_BUNDLE", "HTTP", "http", "NO_PROXY", "no_proxy", "LANG", "LC_", "TERM")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hide", action="store_true", help="no browser and no Arm tools on the PATH")
    parser.add_argument("--python", default="python3", help="the interpreter that makes the virtual environment")
    parser.add_argument("--short", action="store_true", help="one notebook with two requests instead of the whole run")
    parser.add_argument("--again", metavar="CLONE", help="run once more in a clone that was kept")
    parser.add_argument("--keep", metavar="CLONE", help="put the clone here and leave it")
    parser.add_argument("--limit", type=float, default=1500, help="seconds that installing and running may take")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as made:
        work = Path(made)
        where = Path(args.again or args.keep or work / "clone").resolve()
        if not args.again:
            clone(where)
        env = environment(work, hide=args.hide)
        before = set((where / "outputs").glob("*"))
        began = time.monotonic()
        code = run(command(args.python, args.short), where, env, args.limit)
        took = time.monotonic() - began
        wrong = [f"exit code {code}"] if code else []
        new = [p for p in (where / "outputs").glob("*") if p not in before]
        wrong += look(new)
        wrong += [f"still running: {line}" for line in left(where)]
    print(
        f"newcomer: {' '.join(sys.argv[1:]) or 'as installed'}: {took:.0f} s, {'; '.join(wrong) or 'as it should be'}"
    )
    return 1 if wrong else 0


def clone(where: Path) -> None:
    """The commit that is checked out, without anything that git ignores."""
    git = [
        "git",
        "-c",
        f"safe.directory={ROOT}",
        "-c",
        f"safe.directory={ROOT / '.git'}",
        "-c",
        "advice.detachedHead=false",
    ]
    subprocess.run([*git, "clone", "-q", "--no-hardlinks", str(ROOT), str(where)], check=True)


def environment(work: Path, *, hide: bool) -> dict[str, str]:
    """A home of its own, pip's settings and cache as they are here, and with `hide` a PATH of links without HIDDEN."""
    env = {k: v for k, v in os.environ.items() if k.startswith(KEPT)}
    home = Path.home()
    env |= {"HOME": str(work / "home"), "PATH": os.environ["PATH"]}
    env.setdefault("PIP_CACHE_DIR", str(home / ".cache" / "pip"))
    for config in (home / ".config/pip/pip.conf", home / ".pip/pip.conf"):
        if config.exists():
            env.setdefault("PIP_CONFIG_FILE", str(config))
    (work / "home").mkdir()
    if hide:
        env["PATH"] = str(links(work / "bin"))
        for name in ("chromium", "google-chrome", "qemu-aarch64", "aarch64-linux-gnu-gcc"):
            assert not shutil.which(name, path=env["PATH"]), name
    return env


def links(folder: Path) -> Path:
    """Every program of the PATH but the hidden ones; the first of a name wins, as on the PATH itself."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        with contextlib.suppress(OSError):
            for program in os.scandir(place):
                link = folder / program.name
                if not any(fnmatch.fnmatch(program.name, pattern) for pattern in HIDDEN) and not link.is_symlink():
                    link.symlink_to(program.path)
    return folder


def command(python: str, short: bool) -> list[str]:
    """What is typed. The interpreter by its own path: a link or a shim to it may need what this environment lacks."""
    real = subprocess.run(
        [python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True
    )
    make = ["make", f"PYTHON={real.stdout.strip()}"]
    if not short:
        return [*make, "run"]
    quick = ".venv/bin/labkit run 02_baseline -f params/pocket.yaml -p count 1 -p repeats 2 -p output_tokens 48"
    return ["sh", "-c", f"{' '.join(make)} .venv/base && {quick}"]


def run(argv: list[str], where: Path, env: dict[str, str], limit_s: float) -> int | str:
    """Exit code, or a word where it did not end in time: then it and its children are ended."""
    print("newcomer:", *argv, flush=True)
    child = subprocess.Popen(argv, cwd=where, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"did not end within {limit_s:.0f} s"


def look(new: list[Path]) -> list[str]:
    """What is wrong with what a run left in outputs/: one directory with report, executed notebooks and records."""
    if len(new) != 1:
        return [f"one new directory in outputs/ was expected, found {[p.name for p in new]}"]
    (directory,) = new
    wrong = []
    report = directory / "report.html"
    if not report.exists() or "plotly" not in (page := report.read_text(encoding="utf-8")):
        wrong.append("no report.html with figures")
    elif any(f'{name}="http' in page for name in ("src", "link href")):
        wrong.append("the report asks the network for something")
    notebooks = sorted(directory.glob("*.ipynb"))
    if not notebooks:
        wrong.append("no executed notebook")
    for path in notebooks:
        wrong += [f"{path.stem}: {said}" for said in look_at_notebook(json.loads(path.read_text(encoding="utf-8")))]
    records = sorted(directory.glob("records/*/run.json"))
    if not records:
        wrong.append("no record")
    for path in records:
        wrong += [f"record {path.parent.name}: {said}" for said in look_at_record(path)]
    return wrong


def look_at_notebook(nb: dict) -> list[str]:
    cells = [c for c in nb["cells"] if c["cell_type"] == "code"]
    outputs = [o for c in cells for o in c["outputs"]]
    wrong = [f"an error: {o['ename']}: {o['evalue']}" for o in outputs if o["output_type"] == "error"]
    wrong += [f"on stderr: {''.join(o['text'])[:200]!r}" for o in outputs if o.get("name") == "stderr"]
    if any(c["execution_count"] is None for c in cells if "".join(c["source"]).strip()):
        wrong.append("cells that did not run")
    figures = [o["data"] for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    if not figures:
        wrong.append("no figure")
    if nb["metadata"].get("labkit", {}).get("status") != "ok":
        wrong.append(f"marked {nb['metadata'].get('labkit')}")
    return wrong


def look_at_record(path: Path) -> list[str]:
    meta = json.loads(path.read_text(encoding="utf-8"))
    wrong = [] if meta.get("status") == "finished" else [f"status {meta.get('status')}"]
    rows = [p for p in path.parent.glob("requests.*") if p.stat().st_size]
    return wrong if rows else [*wrong, "no rows"]


def left(where: Path) -> list[str]:
    """Processes that still run out of the clone."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if str(where).encode() in words[0]:
                found.append(b" ".join(words).decode(errors="replace")[:200])
    return found


if __name__ == "__main__":
    sys.exit(main())
