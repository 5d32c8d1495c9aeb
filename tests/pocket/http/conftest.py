"""Real server processes, on a tiny model that the NumPy reference runs."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
TEXT = ["the tiny model says the same words again and again, naïve café, 東京 и Москва 🙂"] * 5
CHAT = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
)


@dataclass
class Server:
    """A running server. `text()` reads its log so far."""

    process: subprocess.Popen
    url: str
    log: Path

    def __post_init__(self):
        self.client = httpx.Client(base_url=self.url, timeout=240)  # one: each costs tens of milliseconds to make

    def post(self, path: str, body, **more) -> httpx.Response:
        return self.client.post(path, json=body, **more)

    def get(self, path: str, **more) -> httpx.Response:
        return self.client.get(path, **more)

    def stream(self, path: str, body: dict) -> tuple[list[dict], httpx.Response]:
        """Every event's document; asserts the frame: `data: ...`, a blank line, [DONE] last."""
        with self.client.stream("POST", path, json=body | {"stream": True}) as response:
            raw = response.read().decode()
        assert response.headers["content-type"].startswith("text/event-stream")
        events = raw.split("\n\n")
        assert events.pop() == "" and events.pop() == "data: [DONE]"
        assert all(e.startswith("data: ") for e in events)
        return [json.loads(e[6:]) for e in events], response

    def text(self) -> str:
        return self.log.read_text()

    def stop(self) -> int:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)


# The smallest widths that the C kernels take.
WIDER = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "head_dim": 64,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "qk_rope_head_dim": 32,
    "moe_intermediate_size": 128,
    "moe_shared_expert_intermediate_size": 128,
    "num_experts": 8,
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Weights of 320 words drawn from a seed, with a byte-level tokenizer and a chat template."""
    return make_folder(tmp_path_factory.mktemp("tiny-http"), {})


@pytest.fixture(scope="session")
def c_folder(tmp_path_factory) -> Path:
    """The same in the smallest shape that the C engine runs."""
    return make_folder(tmp_path_factory.mktemp("tiny-c"), WIDER)


def make_folder(folder: Path, changes: dict) -> Path:
    spec = importlib.util.spec_from_file_location("tiny", HERE.parent / "reference" / "tiny.py")
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    tiny.write(folder, seed=0, config=tiny.CONFIG | changes)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=["<|start|>", "<|end|>"],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": CHAT}))
    return folder


@pytest.fixture(scope="session")
def start(folder, tmp_path_factory):
    """start(*flags, env=..., program=...) -> Server; every one is ended with the session."""
    running = []

    def start(
        *flags: str,
        env: dict[str, str] | None = None,
        program=(str(HERE / "reference_engine.py"),),
        model: Path = folder,
    ) -> Server:
        log = tmp_path_factory.mktemp("log") / "server.log"
        common = ["--model-path", str(model), "--port", "0", "--context-length", "512"]
        command = [sys.executable, *program, *common, *flags]
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | (env or {}))
        running.append(process)
        return Server(process, wait_ready(process, log), log)

    yield start
    for process in running:
        process.kill()
        process.wait()


def wait_ready(process: subprocess.Popen, log: Path, timeout_s: float = 200) -> str:
    """The URL of the ready line."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        found = re.search(r"pocket engine ready on (http://\S+)", log.read_text())
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"no ready line:\n{log.read_text()}")


@pytest.fixture(scope="session")
def server(start) -> Server:
    """One server for all tests that leave it as they found it."""
    return start("--random-seed", "7")


@pytest.fixture(scope="session")
def slow_server(start) -> Server:
    """A token takes 0.2 s here and 400 of them minutes: whatever ends sooner has been ended."""
    return start(env={"POCKET_TEST_STEP_S": "0.2"})


@pytest.fixture(scope="session")
def launch(start, c_folder):
    """As `start`, with the C engine."""
    return lambda *flags, **more: start(*flags, program=("-m", "labkit.pocket"), model=c_folder, **more)


@pytest.fixture(scope="session")
def exact() -> tuple[str, ...]:
    """FP8 weights and FP32 activations, as the reference has them; random weights forgive no other rounding."""
    from labkit.pocket import build

    variant = next(v for v in build.available_variants() if v != "avx512bf16")
    return "--dense-dtype", "fp8", "--kernel-variant", variant


@pytest.fixture(scope="session")
def plain(launch) -> Server:
    """The C engine without speculation, for all tests that leave it as they found it."""
    return launch()
