"""What all tests share: hypothesis on shared machines, a peer that keeps pace, and tools that CI must have."""

import os
import shutil
import socket
import time
from pathlib import Path

import compile_once
import pytest
from hypothesis import HealthCheck, settings

import labkit.report.quick  # noqa: F401  (before a test loads nbformat)

# No judgement of a property by how long an example took to make or to run.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

ROOT = Path(__file__).resolve().parents[1]

# The files that take longest, the longest first (`pytest --durations`): begun last, one of them would run alone.
LONGEST = """
browser/test_panels batch/test_walk engines/test_llamacpp notebook/test_front notebooks/test_runs
pocket/kernels/test_speculation pocket/kernels/test_model notebook/test_panel measure/sweep/test_killed
measure/sweep/test_faults measure/sweep/test_cluster measure/test_stood_still figures/test_picture figures/test_overlap
test_load measure/sweep/test_cluster_faults engines/test_process test_waits test_eval
engines/test_pocket_whole notebook/test_experiments checks/test_selfcheck
pocket/kernels/test_neon pocket/http/test_c_engine pocket/kernels/test_build benchmarks/h200/test_campaign
""".split()


def pytest_configure(config):
    """Kernels compiled and bandwidths measured here are the tests' own: a probe beside busy tests would be kept for the
    user's next run. Kept between sessions, because compiling takes long, and nothing is compiled twice."""
    cache = ROOT / "build" / "tests-cache"
    os.environ["XDG_CACHE_HOME"] = str(cache)
    compile_once.install(cache / "bin")
    os.environ.setdefault("POCKET_COPIES_MIB", "64")  # the least: an engine is ready sooner with two copies
    os.environ.setdefault("LABKIT_PROBE_PASSES", "1")  # beside busy tests more of them would be no surer


def pytest_collection_modifyitems(items):
    """The longest files first; with --no-loadscope-reorder, xdist hands them out in this order."""
    place = {str(ROOT / "tests" / f"{name}.py"): i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(str(item.path), len(place)))


@pytest.fixture(scope="session", autouse=True)
def own_runtime_of_this_session(tmp_path_factory):
    """Engines of tests meet no lock of a lab that runs here, nor of tests in another process."""
    os.environ["LABKIT_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))


def wait_until_read(connection: socket.socket, within_s: float = 60.0) -> None:
    """Return once the other end (on this machine) has read all that was sent: whatever is sent next arrives for it at a
    later moment, however busy the machine is. Linux: the kernel's own table of queues."""
    try:
        ours, theirs = (f":{end[1]:04X}" for end in (connection.getsockname(), connection.getpeername()))
    except OSError:
        return  # hung up
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        with open("/proc/net/tcp") as table:
            ends = [line.split()[1:5] for line in table.readlines()[1:]]
        sent = [q for a, b, _, q in ends if a.endswith(ours) and b.endswith(theirs)]
        received = [q for a, b, _, q in ends if a.endswith(theirs) and b.endswith(ours)]
        # tx_queue:rx_queue
        if all(q.startswith("00000000:") for q in sent) and all(q.endswith(":00000000") for q in received):
            return
        time.sleep(0.001)
    raise AssertionError(f"the other end has not read for {within_s:g} s")


@pytest.fixture(scope="session")
def until_read():
    return wait_until_read


# Each mark's tools: every group needs one of its names.
TOOLS = {
    "browser": ("a Chromium", [("chromium", "chromium-browser", "google-chrome", "chrome")]),
    "arm": (
        "gcc-aarch64-linux-gnu and qemu-user",
        [("aarch64-linux-gnu-gcc",), ("qemu-aarch64", "qemu-aarch64-static")],
    ),
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Tests marked `browser` or `arm` skip with a word where their tools are missing; in CI (CI=true) they fail."""
    for mark, (what, groups) in TOOLS.items():
        if item.get_closest_marker(mark) and not all(any(map(shutil.which, names)) for names in groups):
            if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
                pytest.fail(f"CI has {what}, and here it is not on the PATH", pytrace=False)
            pytest.skip(f"needs {what} on the PATH")
