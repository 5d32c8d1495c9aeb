"""`labkit lab`: JupyterLab on working copies of the notebooks."""

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

from labkit import disk
from labkit.errors import BadInput

HELP = "JupyterLab on working copies of the notebooks (work/), so that saving leaves the sources as they are"
WORK, SOURCES, EARLIER = "work", "notebooks", "earlier"


def add_arguments(parser) -> None:
    """Arguments of `labkit lab`."""
    parser.add_argument("--no-start", action="store_true", help="make the working copies and stop")
    parser.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")


def main(args) -> int:
    """Copy what is missing or out of date, then become JupyterLab, rooted where outputs/ can be opened too."""
    from labkit.notebook.given import project

    root = project()
    done = copies(root)
    if args.json:
        print(json.dumps(done))
    else:
        for line in (f"{name}: {what}" for name, what in done.items() if what != "kept"):
            print(line)
    if args.no_start:
        return 0
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}"]
    command += [f"--LabApp.default_url=/lab/tree/{WORK}/00_start_here.ipynb"]
    command += ["--no-browser"] if args.no_browser else []
    command += ["--allow-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    sys.stdout.flush()
    os.execv(sys.executable, command)


def copies(root: Path) -> dict[str, str]:
    """Working copies of all notebooks in root/work; what was done with each. A copy whose source has changed since is
    moved to work/earlier, never overwritten. Raises BadInput where there are no notebooks."""
    sources = sorted((root / SOURCES).glob("*.ipynb"))
    if not sources:
        raise BadInput("folder", str(root), f"the lab's folder, which holds {SOURCES}/")
    work = disk.folder(root / WORK)
    noted = work / ".sources.json"
    try:
        before = json.loads(noted.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    done = {}
    for source in sources:
        copy, digest = work / source.name, hashlib.sha256(source.read_bytes()).hexdigest()
        if copy.exists() and before.get(source.name) == digest:
            done[source.name] = "kept"
            continue
        done[source.name] = "copied"
        if copy.exists():
            place = disk.folder(work / EARLIER) / f"{source.stem}-{time.strftime('%Y%m%d-%H%M%S')}.ipynb"
            copy.rename(place)
            done[source.name] = f"its source is newer: the copy that you had is now {place.relative_to(root)}"
        shutil.copyfile(source, copy)
        before[source.name] = digest
    disk.write_json(noted, before)
    return done
