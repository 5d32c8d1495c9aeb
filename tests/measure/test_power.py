"""Energy from a counter that goes round, from a GPU's sampled power, and from no meter at all."""

import os
import stat
import time

import pytest

from labkit.measure import power


def rapl(root, energy, most=1000000):
    folder = root / "intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0\n")
    (folder / "energy_uj").write_text(str(energy))
    (folder / "max_energy_range_uj").write_text(str(most))
    (root / "intel-rapl:0:0").mkdir()
    (root / "intel-rapl:0:0" / "energy_uj").write_text("5")
    return folder / "energy_uj"


def without_gpu(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")


def test_a_counter_that_goes_round(tmp_path, monkeypatch):
    without_gpu(monkeypatch)
    monkeypatch.setattr(power, "SHORTEST_S", 0.0)
    counter = rapl(tmp_path, 900000)
    with power.Meter(tmp_path) as meter:
        counter.write_text("300000")  # 100000 to the end and 300000 on
    assert meter.joules() == {"RAPL package-0": pytest.approx(0.4)}
    found = power.per_token(meter, 4)["RAPL package-0"]
    assert found.value == pytest.approx(0.1) and found.unit == "J/token" and found.tier == "measured"


def test_no_meter_is_not_measured(tmp_path, monkeypatch):
    without_gpu(monkeypatch)
    with power.Meter(tmp_path) as meter:
        pass
    assert meter.joules() == {} and power.per_token(meter, 10) == {}
    assert "not measured" in power.described(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_counter_that_may_not_be_read_is_no_meter(tmp_path):
    rapl(tmp_path, 1).chmod(0)
    assert power.counters(tmp_path) == []


def test_a_gpus_power_is_sampled(tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 100\necho 20.5\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:/bin:/usr/bin")
    monkeypatch.setattr(power, "SHORTEST_S", 0.0)
    assert power.gpu_watts() == 120.5 and "120 W" in power.described(tmp_path / "none")
    with power.Meter(tmp_path / "none") as meter:
        time.sleep(0.6)
    assert meter.joules()["nvidia-smi"] == pytest.approx(120.5 * meter.seconds, rel=1e-6)
    tool.write_text("#!/bin/sh\necho '[N/A]'\n")
    assert power.gpu_watts() is None, "a board without a meter is not one of 0 W"
