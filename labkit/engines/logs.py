"""An engine's log: its lines as they come, its last ones, and the file that it gets."""

import re
from pathlib import Path


class Tail:
    """Complete new lines of a growing file; a progress bar's \\r ends a line too."""

    def __init__(self, path: Path):
        self._path, self._at, self._rest = path, 0, ""

    def lines(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at += len(data)
        *lines, self._rest = re.split(r"[\r\n]+", self._rest + data.decode(errors="replace"))
        return [line for line in lines if line.strip()]


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log file, [] when there is none."""
    try:
        data = Path(path).read_bytes()[-200_000:]
    except OSError:
        return []
    return [s for s in re.split(r"[\r\n]+", data.decode(errors="replace")) if s.strip()][-lines:]


def new(run_dir: Path) -> Path:
    """An empty log file of a number that none in this folder has yet."""
    n = 1
    while True:
        path = run_dir / f"engine-{n}.log"
        try:
            path.touch(mode=0o600, exist_ok=False)
            return path
        except FileExistsError:
            n += 1
