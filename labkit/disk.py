"""Writing what people keep: whole or not at all, and one line where the disk takes no more. Standard library only."""

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from labkit.errors import BadInput, LabError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
REFUSES = FULL | {errno.EROFS}  # what can only come from writing
KEPT = "what was there before is kept"


class NoRoom(LabError):
    """A file could not be written: the disk is full, over quota, read-only or gone. What was written before is kept."""

    def __init__(self, path: str | Path, cause: OSError, kept: str = KEPT):
        advice = "Make room on that disk, or write elsewhere" if cause.errno in FULL else "Write elsewhere"
        super().__init__(f"{path}: {cause.strerror or cause}; {kept}. {advice}")


def place(path: str | Path, field: str = "output") -> Path:
    """Where a file is to be written. Raises BadInput where its folder is missing: before the work, not after it."""
    path = Path(path)
    if not path.parent.is_dir():
        raise BadInput(field, str(path), "a file in a folder that exists")
    return path


def fresh(parent: Path, stem: str, suffix: str) -> Path:
    """A path in this folder, with the time in its name, that no file has yet. Raises NoRoom."""
    folder(parent)
    name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    path = parent / (name + suffix)
    n = 1
    while path.exists():
        n += 1
        path = parent / f"{name}-{n}{suffix}"
    return path


@contextlib.contextmanager
def whole(path: str | Path, kept: str = KEPT) -> Iterator[Path]:
    """A file to write in place of `path`, which becomes it when the block ends: readers see the old one or the new one.

    The block may call any library that writes to a path (name the format: this path ends in .part). When it fails, the
    new file goes and the old one stays. A pipe or a device, such as /dev/stdout, is written straight. kept: what the
    error says is left. Raises NoRoom for every OSError.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with told(path, kept):
            yield path
        return
    target = Path(os.path.realpath(path))  # a link stays one
    # Its own for each writer: two at once would otherwise replace each other's file away.
    part = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with told(path, kept):
            yield part
            _sync(part)
            os.replace(part, target)
            _sync(target.parent)  # the rename itself must survive a power cut too
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def write_text(path: str | Path, text: str, kept: str = KEPT) -> None:
    """Replace a file by this text, in one step. Raises NoRoom."""
    with whole(path, kept) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: str | Path, document: object, kept: str = KEPT, plain: Callable | None = None) -> None:
    """Replace a file by this document, in one step; plain: json's `default`. Raises NoRoom."""
    write_text(path, json.dumps(document, indent=1, default=plain) + "\n", kept)


def open_log(path: str | Path, kept: str = KEPT) -> BinaryIO:
    """A file of lines to `append` to. The last line, where a kill has cut it, is ended, so that it costs only itself.
    Raises NoRoom."""
    with told(path, kept):
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 whoever asked for it closes it
        try:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
        except BaseException:
            file.close()
            raise
    return file


def append(file: BinaryIO, data: bytes, kept: str = KEPT) -> None:
    """Add to a file of open_log; on disk when this returns, not at all after NoRoom."""
    # Unbuffered: a kill in here leaves at most one cut line at the end.
    before, written = os.fstat(file.fileno()).st_size, 0
    try:
        while written < len(data):
            written += file.write(data[written:])
        os.fsync(file.fileno())
    except OSError as e:
        with contextlib.suppress(OSError):
            file.truncate(before)  # these bytes are room for an end status
        raise NoRoom(file.name, e, kept) from None


def folder(path: str | Path, kept: str = "nothing was written") -> Path:
    """This folder, made where it is missing. Raises NoRoom."""
    with told(path, kept):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


@contextlib.contextmanager
def told(path: str | Path, kept: str = KEPT) -> Iterator[None]:
    """Whatever the disk refuses inside is one line that names this file. Raises NoRoom for every OSError."""
    try:
        yield
    except OSError as e:
        raise NoRoom(path, e, kept) from None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
