"""The bandwidth probe: plausible on any machine, cached, and labelled when it could not be compiled."""

import dataclasses

import pytest

from labkit.errors import BadInput
from labkit.evidence import Tier
from labkit.measure import probe


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probe, "PASSES", 3)
    monkeypatch.setattr(probe, "ROUNDS", 2)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(probe, "working_set", lambda: 64 << 20)


def test_measures_something_plausible(small):
    found = probe.probe()
    assert 0.2e9 < found.low <= found.bytes_s <= found.high < 5e12
    assert found.how == "C loop" and found.clock in ("wall", "cpu")
    evidence = found.evidence()
    assert (evidence.tier, evidence.unit) == (Tier.MEASURED, "GB/s") and "64 MiB" in evidence.source


def test_a_second_call_reads_what_was_kept(small, monkeypatch):
    first = probe.probe()
    monkeypatch.setattr(probe, "_measure", lambda threads: pytest.fail("measured again"))
    assert probe.probe() == first


def test_another_loop_does_not_read_what_this_one_kept(small, monkeypatch, tmp_path):
    first = probe.probe()
    other = tmp_path / "probe.c"
    other.write_bytes(probe.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(probe, "SOURCE", other)
    assert probe.probe().measured_unix > first.measured_unix


@pytest.mark.parametrize(("rate", "clock", "counts"), [(2.0, "wall", True), (0.5, "wall", False), (2.0, "cpu", False)])
def test_another_look_counts_when_it_found_more(small, monkeypatch, rate, clock, counts):
    """What disturbs a probe only ever lowers it; and the time of a core that others used says less than the clock."""
    first = dataclasses.replace(probe._measure(1), clock="wall")
    monkeypatch.setattr(probe, "_measure", lambda threads: first)
    assert probe.probe() == first
    other = dataclasses.replace(first, bytes_s=first.bytes_s * rate, clock=clock)
    monkeypatch.setattr(probe, "_measure", lambda threads: other)
    assert probe.probe(fresh=True) == (other if counts else first)
    assert probe.probe() == (other if counts else first)  # and for whoever asks next


def test_what_is_too_old_does_not_count(small, monkeypatch):
    first = probe.probe()
    monkeypatch.setattr(probe, "FRESH_S", {"wall": 0, "cpu": 0})
    other = dataclasses.replace(first, bytes_s=first.bytes_s / 2)
    monkeypatch.setattr(probe, "_measure", lambda threads: other)
    assert probe.probe() == other


def test_without_a_compiler_numpy_is_used_and_named(small, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = probe.probe(fresh=True)
    assert "NumPy" in found.how and found.bytes_s > 0.1e9
    assert "NumPy" in found.evidence().source


def test_reads_all_of_its_memory(small):
    """The checksum of ones counts what was read: each 8-byte word of 0x01 bytes, once a pass."""
    import numpy as np

    library, size = probe._library(), 8 << 20
    memory = library.probe_alloc(size)
    try:
        order = np.arange(size // probe.BLOCK, dtype=np.uint32)[::-1].copy()
        walls = np.zeros(2)
        total = library.probe_read(
            memory, probe.BLOCK, order.ctypes.data, len(order), 2, walls.ctypes.data, walls.copy().ctypes.data
        )
    finally:
        library.probe_free(memory, size)
    assert total == (2 * size // 8 * 0x0101010101010101) % 2**64
    assert (walls > 0).all()


def test_working_set_is_beyond_the_caches():
    assert probe.working_set() >= probe.LEAST_BYTES and probe.working_set() % (2 << 20) == 0


@pytest.mark.parametrize("threads", [0, 10_000, "2"])
def test_bad_thread_counts(threads):
    with pytest.raises(BadInput):
        probe.probe(threads)
