"""What this machine's memory sustains when it is read as decoding reads weights. Measured once per boot."""

import ctypes
import hashlib
import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labkit import disk, waits
from labkit.errors import BadInput, LabError
from labkit.evidence import Evidence, measured

SOURCE = Path(__file__).with_name("probe.c")
FLAGS = ["-O3", "-march=native", "-Wno-psabi", "-shared", "-fPIC"]
LEAST_BYTES = 256 << 20
BLOCK = 1 << 20
PLACES = 3  # allocations: where memory lies can make a fifth of its speed
PASSES = 8  # undisturbed passes wanted of each
PASSES_S = 120.0  # for PASSES passes; they take one second on a slow machine
ROUNDS = 6  # tries of PASSES each to get them on a machine that others use
CLEAN = 0.97  # CPU time / wall time of a pass from which on nobody else had the core
FRESH_S = {"wall": 24 * 3600.0, "cpu": 600.0}  # a probe of a busy machine is soon tried again


@dataclass(frozen=True)
class Probe:
    """One probe. bytes_s: bytes / time that nine in ten passes stay below; low, high: the median and the fastest pass.
    A slower pass was disturbed by other users of the memory, and a floor must not hold that against the machine.

    clock: "wall" when enough passes had their core to themselves (only those count), else "cpu": all passes by the
    reading threads' CPU time, because waiting for a core says nothing about memory. cpu_share: CPU / wall time of all.
    how: the loop that read; working_set in bytes; huge_pages: whether the system granted them (None: unknown).
    """

    bytes_s: float
    low: float
    high: float
    clock: str
    cpu_share: float
    threads: int
    working_set: int
    huge_pages: bool | None
    how: str
    measured_unix: float

    def evidence(self) -> Evidence:
        """The bandwidth in GB/s, tier measured."""
        pages = {True: ", huge pages", False: ", no huge pages", None: ""}[self.huge_pages]
        busy = f"; by CPU time, other programs left it {self.cpu_share:.0%} of a core" if self.clock == "cpu" else ""
        source = (
            f"probe of this machine: {self.how}, {self.threads} thread(s), {self.working_set >> 20} MiB{pages}{busy}"
        )
        return measured(self.bytes_s / 1e9, "GB/s", source, low=self.low / 1e9, high=self.high / 1e9)


def bandwidth(threads: int = 1, *, fresh: bool = False) -> Evidence:
    """Sustained read bandwidth of this machine, GB/s.

    Kept until the next boot, at most a day, ten minutes when others used the cores meanwhile. `fresh` looks once more
    now, and the better of the two stays: whatever disturbs a probe only ever lowers it.
    """
    return probe(threads, fresh=fresh).evidence()


def probe(threads: int = 1, *, fresh: bool = False) -> Probe:
    """As `bandwidth`, with everything that was seen. Raises BadInput for a thread count outside 1..cores."""
    cores = os.cpu_count() or 1
    if not isinstance(threads, int) or not 1 <= threads <= cores:
        raise BadInput("threads", threads, f"1 to {cores}")
    loop = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:8]  # a figure of another loop is another figure
    path = cache_dir() / f"bandwidth-{threads}-{boot()}-{loop}.json"
    kept = _kept(path)
    if kept and not fresh:
        return kept
    found = _measure(threads)
    if kept and (kept.clock, kept.bytes_s) > (found.clock, found.bytes_s):  # "wall" is above "cpu"
        return kept
    if why := keep(path, asdict(found), "the bandwidth was measured, and will be again next time"):
        print(f"labkit: {why}", file=sys.stderr)  # a figure is a figure, also where it cannot be kept
    return found


def _kept(path: Path) -> Probe | None:
    """What was measured before and still counts."""
    try:
        found = Probe(**cached(path))
        return found if time.time() - found.measured_unix < FRESH_S[found.clock] else None
    except (TypeError, KeyError):  # nothing, or of another version of the lab
        return None


def cache_dir() -> Path:
    """$XDG_CACHE_HOME/labkit/probe, by default below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labkit" / "probe"


def cached(path: Path) -> Any:
    """What `keep` wrote there; None where nothing is, or nothing readable."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def keep(path: Path, document: object, still: str = "it was measured, and will be again next time") -> str | None:
    """Write a document for `cached`; why it could not be kept, in words, or None. still: what that costs."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_json(path, document, still)
    except disk.NoRoom as e:
        return str(e)
    except OSError as e:
        return f"{path} cannot be written ({e.strerror or e}); {still}"
    return None


def working_set() -> int:
    """Bytes that no cache of this machine holds: four times the last-level cache, at least 256 MiB."""
    largest = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
        if scale:
            largest = max(largest, int(text[:-1]) * scale)
    wanted = max(LEAST_BYTES, 4 * largest)
    return -(-wanted // (2 << 20)) * (2 << 20)


def _measure(threads: int) -> Probe:
    size = working_set()
    try:
        library, how = _library(), "C loop"
    except LabError:
        library, how = None, "NumPy sum (no C compiler: an under-estimate of what a compiled loop reads)"
    tries = [_with_c(library, size, threads) if library else _with_numpy(size, threads) for _ in range(PLACES)]
    walls, cpus, huge = np.hstack([t[0] for t in tries]), np.hstack([t[1] for t in tries]), tries[0][2]
    clean = _clean(walls, cpus)
    clock = "wall" if clean.sum() >= 5 else "cpu"
    times = walls[:, clean] if clock == "wall" else cpus
    # A pass is as slow as its slowest thread.
    rates = threads * (size // threads // BLOCK * BLOCK) / times.max(axis=0)
    low, best, high = np.quantile(rates, [0.5, 0.9, 1.0])
    share = float(np.median(cpus / walls))
    return Probe(float(best), float(low), float(high), clock, share, threads, size, huge, how, time.time())


def _clean(walls: np.ndarray, cpus: np.ndarray) -> np.ndarray:
    """Which passes had their cores to themselves, every thread of them: [passes] of bool."""
    return (cpus / walls).min(axis=0) >= CLEAN


def _rounds(once, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Wall and CPU times [threads, passes]: PASSES at a time until enough are clean or the rounds are used up."""
    walls, cpus = np.zeros((threads, 0)), np.zeros((threads, 0))
    for _ in range(ROUNDS):
        wall, cpu = np.zeros((threads, PASSES)), np.zeros((threads, PASSES))
        _at_once(lambda i, wall=wall, cpu=cpu: once(i, wall[i], cpu[i]), threads)
        walls, cpus = np.hstack([walls, wall]), np.hstack([cpus, cpu])
        if _clean(walls, cpus).sum() >= PASSES:
            break
    return walls, cpus


def _with_c(library: ctypes.CDLL, size: int, threads: int) -> tuple[np.ndarray, np.ndarray, bool | None]:
    memory = library.probe_alloc(size)
    if not memory:
        raise LabError(f"not enough memory for the bandwidth probe ({size >> 20} MiB)")
    try:
        part = size // threads // BLOCK
        rng = np.random.default_rng(0)
        orders = [np.ascontiguousarray(rng.permutation(part) + i * part, np.uint32) for i in range(threads)]

        def once(i: int, wall: np.ndarray, cpu: np.ndarray) -> None:
            # ctypes releases the GIL, so the threads really run at once.
            library.probe_read(memory, BLOCK, orders[i].ctypes.data, part, PASSES, wall.ctypes.data, cpu.ctypes.data)

        return *_rounds(once, threads), _huge_pages(size)
    finally:
        library.probe_free(memory, size)


def _with_numpy(size: int, threads: int) -> tuple[np.ndarray, np.ndarray, bool | None]:
    memory = np.ones(size // 8, np.int64)
    part = size // threads // BLOCK * BLOCK // 8

    def once(i: int, wall: np.ndarray, cpu: np.ndarray) -> None:
        mine = memory[i * part : (i + 1) * part]
        for n in range(PASSES):
            began, busy = time.perf_counter(), time.thread_time()
            mine.sum()
            wall[n], cpu[n] = time.perf_counter() - began, time.thread_time() - busy

    return *_rounds(once, threads), None


def _at_once(work, threads: int) -> None:
    """work(i) in each thread, begun together. Raises LabError when one of them failed, TookTooLong."""
    gate, failed = threading.Barrier(threads, timeout=PASSES_S), []

    def body(i: int) -> None:
        try:
            gate.wait()
            work(i)
        except Exception as e:
            gate.abort()  # those that wait for this one go home
            failed.append(e)

    workers = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(threads)]
    try:
        for w in workers:
            w.start()
    except RuntimeError as e:  # no more threads for this user
        gate.abort()
        raise LabError(f"the bandwidth probe could not start {threads} threads: {e}") from None
    waits.join(workers, "the bandwidth probe's reading threads", 2 * PASSES_S)
    if failed:
        first = next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
        raise LabError(f"a reading thread of the bandwidth probe failed: {type(first).__name__}: {first}")


def _library() -> ctypes.CDLL:
    """The compiled loop, cached by content, flags and boot (so never for another processor). Raises LabError."""
    code = SOURCE.read_bytes()
    name = hashlib.sha256(code + " ".join(FLAGS).encode() + boot().encode()).hexdigest()[:16]
    path = cache_dir() / f"probe-{name}.so"
    if not path.exists():
        disk.folder(path.parent)
        with disk.whole(path, "the bandwidth was not measured") as part:
            _compile([str(SOURCE), "-o", str(part)])
    library = ctypes.CDLL(str(path))
    pointer, size, integer = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.probe_alloc.argtypes, library.probe_alloc.restype = [size], pointer
    library.probe_free.argtypes, library.probe_free.restype = [pointer, size], None
    library.probe_read.argtypes = [pointer, size, pointer, size, integer, pointer, pointer]
    library.probe_read.restype = ctypes.c_uint64
    return library


def _compile(rest: list[str]) -> None:
    from labkit.pocket.build import find_compiler

    argv = [*find_compiler(), *FLAGS, *rest]
    try:
        done = waits.run(argv, what="the compiler of the bandwidth probe", timeout_s=waits.COMPILE_S)
    except OSError as e:
        raise LabError(f"the bandwidth probe could not be compiled: {argv[0]}: {e.strerror or e}") from None
    if done.returncode:
        raise LabError(f"the bandwidth probe could not be compiled: {done.stderr.strip()[:300]}")


def _huge_pages(size: int) -> bool | None:
    try:
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("AnonHugePages:"):
                return int(line.split()[1]) * 1024 >= size // 2
    except OSError:
        pass
    return None


def boot() -> str:
    """A word that is another one after every start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "any"


__all__ = ["Probe", "bandwidth", "boot", "cache_dir", "probe", "working_set"]
