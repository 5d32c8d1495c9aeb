"""Who answers at an address, by several signs of different kinds, and in which dialect it is asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from labkit.engines import llamacpp, vllm
from labkit.engines.dialects import SGLANG, Dialect, openai
from labkit.engines.http import Unreachable, get_json, get_text, post_json
from labkit.engines.identify import UNKNOWN, Identity, identify
from labkit.engines.server_info import allowed
from labkit.errors import BadInput

ASK_S = 10.0  # for each of these documents


@dataclass(frozen=True)
class Found:
    """identity: who, with the signs; info: what it says of itself, allow-listed; alive: an address that answers.

    missing: what the lab cannot report of this engine, for people.
    """

    identity: Identity
    info: dict
    dialect: Dialect = SGLANG
    alive: str = "/server_info"
    missing: tuple[str, ...] = field(default=())


@dataclass
class _Documents:
    """What the server has at the addresses that tell engines apart; each is asked for once, absent ones are {}."""

    url: str
    api_key: str | None
    said: dict[str, str] = field(default_factory=dict)  # why a document is absent
    _kept: dict[str, Any] = field(default_factory=dict)

    def json(self, path: str) -> dict:
        return self._once(path, lambda: get_json(self.url, path, self.api_key, ASK_S))

    def text(self, path: str) -> str:
        return self._once(path, lambda: get_text(self.url, path, self.api_key, ASK_S)) or ""

    def _once(self, path: str, ask: Callable[[], Any]) -> Any:
        if path not in self._kept:
            try:
                self._kept[path] = ask()
            except Unreachable as e:
                if not e.status or e.status in (401, 403):
                    raise  # nobody there, or a key is missing: asking on would say nothing
                self.said[path], self._kept[path] = str(e).partition(f"{path}: ")[2], {}
            if not isinstance(self._kept[path], (dict, str)):
                self._kept[path] = {}
        return self._kept[path]

    @property
    def models(self) -> list[dict]:
        """The cards in /v1/models."""
        data = self.json("/v1/models").get("data")
        return [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []

    @property
    def owner(self) -> str:
        return str(self.models[0].get("owned_by", "")) if self.models else ""


def look(url: str, api_key: str | None = None, *, model: str | None = None) -> Found:
    """Find out who serves. model: which one is meant where a server has several.

    Raises Unreachable, saying what was found and what is needed, for a server that the lab cannot measure; BadInput
    "model" when it has several and none is named.
    """
    seen = _Documents(url, api_key)
    told = seen.json("/server_info") or seen.json("/get_server_info")  # by its older name
    known = identify(told)
    if known.known or "model_path" in told:
        return Found(known, allowed(told))
    for one in (_llamacpp, _vllm, _tensorrt, _ollama, _lmstudio, _transformers):
        if (found := one(seen, model)) is not None:
            return found
    if seen.models or (model is not None and _there(seen, "/v1/chat/completions")):
        signs = ("/v1/models lists models",) if seen.models else ("/v1/chat/completions is there",)
        return _openai(seen, Identity(UNKNOWN, None, signs, _open(seen)), model)
    raise Unreachable(
        f"{url}: a server that the lab cannot measure: {_open(seen)}. Needed: SGLang's /generate and /server_info, "
        "llama.cpp's /completion and /props, or OpenAI's /v1/models with /v1/completions or /v1/chat/completions (as "
        "vLLM, Ollama and LM Studio have them)"
    )


def _llamacpp(seen: _Documents, model: str | None) -> Found | None:
    props = seen.json("/props")
    signs = []
    if "build_info" in props and "default_generation_settings" in props:
        signs.append(f"/props with build_info {str(props['build_info'])[:40]}")
    if seen.owner == "llamacpp":
        signs.append("/v1/models owned by llamacpp")
    if len(signs) < 2:
        return None
    info = llamacpp.describe(seen.url, seen.api_key)
    who = Identity("llamacpp", info.get("version"), tuple(signs))
    return Found(who, info, llamacpp.DIALECT, "/props", llamacpp.DIALECT.unsaid)


def _vllm(seen: _Documents, model: str | None) -> Found | None:
    signs = ["/v1/models owned by vllm"] if seen.owner == "vllm" else []
    counts = vllm.read(metrics) if "vllm:" in (metrics := seen.text("/metrics")) else {}
    if counts:
        signs.append("vllm: names in /metrics")
    version = seen.json("/version").get("version")
    if version and seen.owner != "tensorrt_llm":
        signs.append(f"/version {str(version)[:40]}")
    if len(signs) < 2 or not ("vllm" in seen.owner or counts):
        return None
    # The counters exist only where the server drafts.
    return _openai(
        seen, Identity("vllm", str(version or ""), tuple(signs)), model, extras=True, salt=True, counts=counts
    )


def _tensorrt(seen: _Documents, model: str | None) -> Found | None:
    version = seen.json("/version").get("version")
    if seen.owner != "tensorrt_llm" or not version:
        return None
    signs = ("/v1/models owned by tensorrt_llm", f"/version {str(version)[:40]}")
    return _openai(seen, Identity("tensorrt-llm", str(version), signs), model, extras=True)


def _ollama(seen: _Documents, model: str | None) -> Found | None:
    version = seen.json("/api/version").get("version")
    signs = [f"/api/version {str(version)[:40]}"] if version else []
    if isinstance(seen.json("/api/tags").get("models"), list):
        signs.append("/api/tags lists models")
    if "Ollama is running" in seen.text("/"):
        signs.append("/ says so")
    return _openai(seen, Identity("ollama", str(version), tuple(signs)), model) if version and len(signs) > 1 else None


def _lmstudio(seen: _Documents, model: str | None) -> Found | None:
    """Its two interfaces of its own: /api/v0 and, since 0.4, /api/v1."""
    for path, name, own in (
        ("/api/v0/models", "data", ("state", "publisher")),
        ("/api/v1/models", "models", ("loaded_instances", "publisher")),
    ):
        data = seen.json(path).get(name)
        cards = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        if cards and set(own) <= cards[0].keys() and seen.models:
            signs = (f"{path} with {' and '.join(own)}", "/v1/models lists models")
            return _openai(seen, Identity("lmstudio", None, signs), model)
    return None


def _transformers(seen: _Documents, model: str | None) -> Found | None:
    """transformers serve: it lists what its cache holds, and loads any model or folder by name when asked."""
    paths = seen.json("/openapi.json").get("paths")
    if not isinstance(paths, dict) or not {"/load_model", "/reset", "/v1/responses"} <= paths.keys():
        return None
    status = [m["status"].get("value") for m in seen.models if isinstance(m.get("status"), dict)]
    if not {"loaded", "unloaded"}.issuperset(status) or len(status) != len(seen.models):
        return None
    listed = "says what is loaded" if status else "lists nothing yet"
    signs = ("/openapi.json has /load_model and /reset", f"/v1/models {listed}")
    return _openai(seen, Identity("transformers", None, signs), model, unlisted=True)


def _openai(
    seen: _Documents,
    who: Identity,
    model: str | None,
    *,
    extras: bool = False,
    salt: bool = False,
    counts: dict | None = None,
    unlisted: bool = False,
) -> Found:
    """unlisted: it serves models that it does not list."""
    ids = [str(m.get("id")) for m in seen.models]
    if model is None and len(ids) != 1:
        raise BadInput("model", None, "one of " + ", ".join(ids[:20]) if ids else "a model that the server has loaded")
    if model is not None and ids and model not in ids and not unlisted:
        raise BadInput("model", model, "one of " + ", ".join(ids[:20]))
    name = model or ids[0]
    drafts = bool(counts and "drafts" in counts)
    chat = _only_chat(seen)
    dialect = openai(name, chat=chat, extras=extras, salt=salt, counters=vllm if drafts else None)
    card = next((m for m in seen.models if m.get("id") == name), {})
    info = {
        "engine": who.engine,
        "version": who.version,
        "served_model_name": name,
        "model_path": card.get("root", name),
    }
    if card.get("max_model_len"):
        info["context_length"] = card["max_model_len"]
    missing = tuple(dict.fromkeys((*dialect.unsaid, "its kernels, head and quantisation")))
    return Found(who, allowed(info) | {"engine": who.engine}, dialect, "/v1/models", missing)


_NO_ROUTE = (404, 405, 501)


def _only_chat(seen: _Documents) -> bool:
    """Whether there is /v1/chat/completions and no /v1/completions."""
    return not _there(seen, "/v1/completions") and _there(seen, "/v1/chat/completions")


def _there(seen: _Documents, path: str) -> bool:
    """Whether there is such a route: a list, which no server takes for a request, is refused where there is one and not
    found where there is none. An empty object will not do: llama-cpp-python generates from it, without a limit."""
    try:
        post_json(seen.url, path, [], seen.api_key, ASK_S)
    except Unreachable as e:
        return e.status not in _NO_ROUTE
    return True


def _open(seen: _Documents) -> str:
    told = [f"{path} {why}" for path, why in seen.said.items()]
    if seen.owner:
        told.append(f"/v1/models owned by {seen.owner[:40]}")
    return ", ".join(told) or "none of its documents tells which engine it is"
