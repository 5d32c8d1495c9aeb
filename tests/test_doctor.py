"""`labkit doctor` on this machine, as a person and as a machine read it."""

import json
import os
import subprocess
import sys


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
