"""The C compiler of these tests: `compile_once.py CACHE COMPILER ARGUMENT...` asks the real one once for each thing.

A first start of an engine compiles for ten seconds, and many tests have one. What was compiled is kept by content:
arguments, sources with all that lies beside them and in folders of headers, and the compiler. A run that failed or
said anything is not kept.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def install(folder: Path) -> None:
    """Put a `cc` in front of the PATH that comes here for each compilation; nothing where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or Path(compiler).parent == folder:
        return
    cache = folder.parent / "compiled"
    for made in (folder, cache):
        made.mkdir(parents=True, exist_ok=True)
    ask = shlex.join([sys.executable, "-I", "-S", __file__, str(cache), compiler])
    text = f'#!/bin/sh\ncase " $* " in *" -o "*) exec {ask} "$@" ;; *) exec {shlex.quote(compiler)} "$@" ;; esac\n'
    handle, part = tempfile.mkstemp(dir=folder)
    with open(handle, "w") as file:
        file.write(text)
    os.chmod(part, 0o755)
    os.replace(part, folder / "cc")
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def key(compiler: str, words: list[str]) -> str:
    """What decides the result."""
    at = os.stat(compiler)
    said = [os.path.realpath(compiler), at.st_size, at.st_mtime_ns, *words]
    h = hashlib.sha256(repr(said).encode())
    beside = {Path(w).parent for w in words if w.endswith(".c") and Path(w).is_file()}
    for folder in sorted(beside | {Path(w[2:]) for w in words if w.startswith("-I")}):
        for path in sorted(folder.glob("*.[ch]")):
            h.update(path.name.encode() + path.read_bytes())
    if "-march=native" in words:
        cpu = Path("/proc/cpuinfo")
        flags = [x for x in cpu.read_text().splitlines() if x.startswith("flags")][:1] if cpu.exists() else []
        h.update(repr([platform.machine(), flags]).encode())
    return h.hexdigest()


def main(cache: Path, compiler: str, words: list[str]) -> int:
    """The compiler's exit code."""
    at = words.index("-o")
    target = words[at + 1] if at + 1 < len(words) else "-"
    if target == "-" or words.count("-o") != 1 or not any(w.endswith(".c") for w in words):
        os.execv(compiler, [compiler, *words])
    kept = cache / key(compiler, [*words[:at], *words[at + 2 :]])
    if kept.exists():
        shutil.copy(kept, target)
        return 0
    done = subprocess.run([compiler, *words], capture_output=True)
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    if done.returncode == 0 and not done.stdout + done.stderr:
        handle, part = tempfile.mkstemp(dir=cache)
        os.close(handle)
        shutil.copy(target, part)
        os.replace(part, kept)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
