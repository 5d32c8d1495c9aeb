"""A real Dask scheduler and real worker processes here, each with a folder and an owner's lock of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

COPIES = {"POCKET_COPIES_MIB": "16"}  # an engine that is ready sooner


class Cluster:
    """Context manager; whatever a test leaves running is ended."""

    def __init__(self, folder: Path, *options: str, protocol: str = "tcp"):
        self.folder, self.options, self.protocol = folder, options, protocol
        self.workers: dict[str, psutil.Process] = {}
        folder.mkdir()

    def __enter__(self) -> "Cluster":
        file = self.folder / "scheduler.json"
        words = ["scheduler", "--host", f"{self.protocol}://127.0.0.1", "--port", "0", "--no-dashboard"]
        self.scheduler = self._start(words + ["--scheduler-file", str(file)], "scheduler")
        try:
            # It is there before it is written.
            self._until(lambda: file.exists() and file.read_text().rstrip().endswith("}"), self.scheduler)
        except BaseException:
            self.__exit__()
            raise
        self.address = json.loads(file.read_text())["address"]
        return self

    def worker(self, name: str, *more: str, resources: str = "engine=1", nanny: bool = False, **env: str) -> None:
        """Start one; returns once it is registered."""
        words = ["worker", self.address, "--name", name, "--nthreads", "1", "--no-dashboard", *more]
        words += ["--nanny" if nanny else "--no-nanny", "--local-directory", str(self.folder / name)]
        words += ["--resources", resources] if resources else []
        env = {"LABKIT_RUNTIME_DIR": str(self.folder / f"{name}-runtime"), **COPIES, **env}
        self.workers[name] = self._start(words, name, **env)
        self._until(lambda: "Registered to" in (self.folder / f"{name}.log").read_text(), self.workers[name])

    def blocks(self, name: str) -> list[Path]:
        """Records that this worker writes now."""
        return list((self.folder / name).glob("dask-scratch-space/*/labkit-*/record/requests.jsonl"))

    def kill(self, name: str) -> list[psutil.Process]:
        """SIGKILL to a worker; the processes that it had started."""
        worker = self.workers.pop(name)
        family = worker.children(recursive=True)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait(60)
        return family

    def _start(self, words: list[str], name: str, **env: str) -> psutil.Popen:
        argv = [str(Path(sys.executable).with_name("dask")), *words, *self.options]
        log = open(self.folder / f"{name}.log", "w")  # noqa: SIM115
        with log:
            return psutil.Popen(argv, env=os.environ | env, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)

    def _until(self, condition, process) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert process.poll() is None and time.monotonic() < end, self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        """What they said last."""
        return "\n".join(f"{p.name}: {p.read_text()[-2000:]}" for p in self.folder.glob("*.log"))

    def __exit__(self, *_) -> None:
        everyone = [*self.workers.values(), self.scheduler]
        family = []
        for process in everyone:
            with contextlib.suppress(psutil.Error):  # one that has ended by itself
                family += process.children(recursive=True)
                process.terminate()
        for process in psutil.wait_procs([*everyone, *family], timeout=20)[1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
