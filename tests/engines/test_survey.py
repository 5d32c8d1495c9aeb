"""Who answers at an address: small servers that have the documents of each kind, and some that lie or are nobody."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from served import served

from labkit.cli import main as labkit
from labkit.engines import survey
from labkit.engines.http import Unreachable
from labkit.errors import BadInput


@contextmanager
def serving(documents: dict):
    """A server with these documents by path; strings are sent as they are. -> its url"""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = documents.get(self.path)
            body = found.encode() if isinstance(found, str) else json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_):
            pass

    with served(Handler) as server:
        yield server.url


def models(owner: str, *ids: str, **more) -> dict:
    return {"object": "list", "data": [{"id": i, "object": "model", "owned_by": owner, **more} for i in ids or ("m",)]}


LLAMACPP = {
    "/props": {
        "build_info": "b11434-abc",
        "model_path": "/m.gguf",
        "total_slots": 1,
        "default_generation_settings": {"n_ctx": 4096, "params": {"speculative.types": "none"}},
    },
    "/v1/models": models("llamacpp", meta={"size": 96576768, "n_params": 134515008, "ftype": "Q4_1"}),
    "/slots": [{"id": 0, "speculative": True}],
    "/completion": {"content": "a", "generation_settings": {"speculative.types": "none,ngram-mod"}},
}
VLLM = {
    "/v1/models": models("vllm", root="org/model", max_model_len=8192),
    "/version": {"version": "0.14.0"},
    "/metrics": 'vllm:generation_tokens_total{engine="0"} 5.0\n',
}
DRAFTING = VLLM | {"/metrics": VLLM["/metrics"] + 'vllm:spec_decode_num_drafts_total{engine="0"} 3.0\n'}


def test_llamacpp_by_two_signs():
    with serving(LLAMACPP) as url:
        found = survey.look(url)
    assert found.identity.engine == "llamacpp" and found.identity.version == "b11434-abc"
    assert len(found.identity.signs) == 2 and found.dialect.path == "/completion"
    assert found.info["model_bytes"] == 96576768 and found.info["context_length"] == 4096


def test_llamacpp_drafts_though_its_props_say_none():
    """The trap: /props has "none" while the server drafts; an answer's settings tell."""
    with serving(LLAMACPP) as url:
        assert survey.look(url).info["speculative_algorithm"] == "ngram-mod"


@pytest.mark.parametrize("documents, drafts", [(VLLM, False), (DRAFTING, True)])
def test_vllm(documents, drafts):
    with serving(documents) as url:
        found = survey.look(url)
    assert (found.identity.engine, found.identity.version) == ("vllm", "0.14.0")
    assert len(found.identity.signs) == 3 and (found.dialect.counters is not None) == drafts
    assert found.info["context_length"] == 8192 and ("accept length" in found.missing) != drafts


@pytest.mark.parametrize(
    "documents, engine",
    [
        ({"/v1/models": models("tensorrt_llm"), "/version": {"version": "1.2"}}, "tensorrt-llm"),
        (
            {
                "/v1/models": models("library"),
                "/api/version": {"version": "0.15"},
                "/api/tags": {"models": []},
                "/": "Ollama is running",
            },
            "ollama",
        ),
        (
            {
                "/v1/models": models("organization_owner"),
                "/api/v0/models": {"data": [{"id": "m", "state": "loaded", "publisher": "p"}]},
            },
            "lmstudio",
        ),
        (
            {
                "/v1/models": models("organization_owner"),
                "/api/v1/models": {"models": [{"key": "m", "publisher": "p", "loaded_instances": [{"id": "m"}]}]},
            },
            "lmstudio",
        ),
        (
            {
                "/v1/models": models("org", status={"value": "unloaded"}),
                "/openapi.json": {"paths": {"/load_model": {}, "/reset": {}, "/v1/responses": {}}},
            },
            "transformers",
        ),
        ({"/v1/models": models("somebody")}, "unknown"),
        ({"/v1/models": models("vllm")}, "unknown"),  # one sign alone establishes nobody
        ({"/v1/models": models("llamacpp")}, "unknown"),
    ],
)
def test_others(documents, engine):
    with serving(documents) as url:
        found = survey.look(url)
    assert found.identity.engine == engine and found.dialect.path == "/v1/completions"
    assert found.identity.known == (engine != "unknown") and "accept length" in found.missing


def test_of_several_models_one_is_named():
    with serving({"/v1/models": models("x", "small", "large")}) as url:
        with pytest.raises(BadInput, match="one of small, large"):
            survey.look(url)
        assert survey.look(url, model="large").info["served_model_name"] == "large"
        with pytest.raises(BadInput, match="medium"):
            survey.look(url, model="medium")


def test_transformers_serves_what_it_does_not_list():
    """A fresh one lists nothing, and loads what it is asked for."""
    paths = {"/openapi.json": {"paths": {"/load_model": {}, "/reset": {}, "/v1/responses": {}}}}
    with serving(paths | {"/v1/models": {"object": "list", "data": []}}) as url:
        assert survey.look(url, model="/models/mine").info["served_model_name"] == "/models/mine"
        with pytest.raises(BadInput, match="model.*loaded"):
            survey.look(url)
    with serving(paths | {"/v1/models": models("org", "org/other", status={"value": "loaded"})}) as url:
        assert survey.look(url, model="org/mine").identity.engine == "transformers"


def test_a_server_without_a_list_is_measured_by_the_models_name():
    with serving({"/v1/chat/completions": {}}) as url:
        found = survey.look(url, model="m")
        assert not found.identity.known and found.dialect.path == "/v1/chat/completions"
        with pytest.raises(Unreachable, match="/v1/models HTTP 404"):
            survey.look(url)


def test_a_redirect_names_the_address_to_give(redirecting):
    with pytest.raises(Unreachable, match="redirects to https://elsewhere.example/.*give the address"):
        survey.look(redirecting)


@pytest.fixture
def redirecting():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(308)
            self.send_header("Location", "https://elsewhere.example" + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with served(Handler) as server:
        yield server.url


def test_a_server_that_cannot_be_measured_says_what_was_found_and_what_is_needed(capsys):
    with serving({"/health": {}}) as url:
        with pytest.raises(Unreachable, match=r"/v1/models HTTP 404.*Needed: SGLang's /generate"):
            survey.look(url)
        assert labkit(["bench", "--url", url, "--json"]) == 1
    told = capsys.readouterr()
    assert "Needed" in json.loads(told.out)["error"] and "Needed" in told.err


def test_nobody_there():
    with pytest.raises(Unreachable, match="refused"):
        survey.look("http://127.0.0.1:9")
