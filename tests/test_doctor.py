"""`labkit doctor` on this machine, as a person and as a machine read it."""

import json
import os
import subprocess
import sys

import pytest

from labkit.measure import lacks as missing


def doctor(*argv, **env):
    return subprocess.run(
        [sys.executable, "-m", "labkit.cli", "doctor", *argv],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **env},
    )


def test_says_what_is_here_and_what_the_memory_sustains():
    out = doctor("--json")
    found = json.loads(out.stdout)
    assert out.returncode == 0 and found["engines"]["pocket"].startswith("ready")
    memory = found["memory_bandwidth"]
    assert memory["tier"] == "measured" and memory["unit"] == "GB/s"
    assert 0 < memory["low"] <= memory["value"] <= memory["high"]
    assert found["machine"]["memory_bytes"] > 0


def test_without_a_compiler_it_says_what_to_install(tmp_path):
    out = doctor(PATH=str(tmp_path), CC="")
    assert out.returncode == 1 and "Traceback" not in out.stderr
    assert "ziglang" in out.stdout and "apt install gcc" in out.stdout


MACHINE = {"usable_cores": 4, "gpus": [{"name": "a GPU"}]}
CHANGING = {
    "huge_pages": "always [madvise] never",
    "governor": "performance",
    "load_average": [0.1],
    "available_bytes": 9e9,
}


def said(tmp_path, machine=None, changing=None):
    return {lack.what: lack for lack in missing.found(MACHINE | (machine or {}), CHANGING | (changing or {}), tmp_path)}


@pytest.mark.parametrize(
    ("machine", "changing", "what", "cost"),
    [
        ({"usable_cores": 1}, {}, "one core", "arrive in lumps"),
        ({"gpus": []}, {}, "no NVIDIA GPU", "SGLang cannot run"),
        ({}, {"huge_pages": "always madvise [never]"}, "no transparent huge pages", "half as long again"),
        ({}, {"huge_pages": None}, "no transparent huge pages", "half as long again"),
        ({}, {"available_bytes": 1e9}, "little memory", "1.0 GB are free"),
        ({}, {"load_average": [3.0]}, "no quiet machine", "3.0 processes"),
        ({}, {"governor": "powersave"}, "no steady clock (governor powersave)", "slower"),
    ],
)
def test_what_is_missing_and_what_it_costs(tmp_path, machine, changing, what, cost):
    assert what not in said(tmp_path)
    lack = said(tmp_path, machine, changing)[what]
    assert cost in lack.cost and "\n" not in lack.line() and not lack.stops


def test_a_containers_limits_count(tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    (tmp_path / "memory.max").write_text("1500000000\n")
    (tmp_path / "memory.current").write_text("500000000\n")
    assert {"one core", "little memory"} <= set(said(tmp_path))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert not {"one core", "little memory"} & set(said(tmp_path))


def test_without_any_program_each_is_named_with_its_cost(tmp_path):
    """A PATH that is really empty."""
    out = doctor("--json", PATH=str(tmp_path), CC="")
    lacks = {lack["what"]: lack for lack in json.loads(out.stdout)["missing"]}
    assert out.returncode == 1 and lacks["no C compiler"]["stops"]
    assert {"no git", "no Chromium", "no Arm compiler and emulator"} <= set(lacks)
    assert all(lack["cost"] for lack in lacks.values())


def test_what_fits_here_and_which_meters_there_are():
    found = json.loads(doctor("--json", "--context", "4096", "--all-threads").stdout)
    models = {m["id"]: m for m in found["capacity"]["models"]}
    assert models["pocket"]["fits"] and not models["deepseek-v3"]["fits"]
    assert found["capacity"]["usable"]["value"] > 0 and found["power_meters"]
    counts = [row["threads"] for row in found["memory_bandwidth_by_threads"]]
    assert (
        counts[0] == 1
        and counts == sorted(set(counts))
        and all(row["value"] > 0 for row in found["memory_bandwidth_by_threads"])
    )


def test_an_entry_for_ones_own_catalog(tmp_path):
    (tmp_path / "own.yaml").write_text(doctor("--yaml").stdout)
    out = subprocess.run(
        [sys.executable, "-m", "labkit.cli", "bytes", "--model", "qwen3-8b", "--machine", "my-machine", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "LABKIT_CATALOG": str(tmp_path)},
    )
    assert json.loads(out.stdout)["machine"] == "my-machine", out.stderr
