"""What is captured about the machine and the checkout."""

import json
import subprocess

from labkit.records import environment


def test_capture_is_plain_json_and_names_the_machine():
    found = environment.capture()
    json.dumps(found, allow_nan=False)
    assert found["cpu"] and found["cores"] >= 1 and found["memory_bytes"] > 2**28
    assert found["packages"]["numpy"] and set(environment.machine()) <= set(found)


def test_git_state(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    assert environment.git_state(tmp_path) is None
    git("init", "-q")
    (tmp_path / "f").write_text("1")
    git("add", "f")
    git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "c")
    state = environment.git_state(tmp_path)
    assert len(state["commit"]) == 40 and not state["dirty"]
    (tmp_path / "f").write_text("2")
    assert environment.git_state(tmp_path)["dirty"]


def test_gpus_from_what_nvidia_smi_prints(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.1, 143771 MiB, 1980 MHz, 3201 MHz, 1980 MHz, 31, 75.2 W, 0 %'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    (gpu,) = environment.gpus()
    assert (gpu["name"], gpu["clocks.mem"], gpu["temperature.gpu"]) == ("NVIDIA H200", "3201 MHz", "31")
    tool.write_text("#!/bin/sh\nexit 9\n")
    assert environment.gpus() == []
