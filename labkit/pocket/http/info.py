"""What the server tells about itself: named settings and what the engine describes. No key, no environment."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from starlette.routing import Route

from labkit import __version__
from labkit.pocket.http.queue import RequestQueue
from labkit.pocket.options import Options

# Options that are shown as they are, under SGLang's names where SGLang has the field.
SHOWN = (
    "model_path",
    "moe_runner_backend",
    "fp8_lm_head",
    "enable_fp32_lm_head",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "simulate_acc_len",
    "speculative_token_map",
    "threads",
    "context_length",
    "random_seed",
)
# What the engine says really runs, except what a real engine would not tell: `moe_kernels` would give a silent fallback
# of the MoE backend away, which on SGLang only the log does.
HIDDEN = ("moe_kernels", "lm_head_dtype")
BACKENDS = {
    "generic": "prebuilt run-time-shape kernels",
    "jit": "JIT shape-specialised kernels (the CPU counterpart of Humming)",
}


def server_info(
    options: Options, queue: RequestQueue, *, host: str, port: int, model: str, startup_s: float, command: list[str]
) -> dict[str, Any]:
    """The resolved settings, and live numbers under internal_states. Seconds, tokens, tokens/s."""
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name in SHOWN}
    described = {k: v for k, v in queue.engine.describe().items() if k not in HIDDEN}
    if isinstance(described.get("compile_s"), dict):  # by kernel it would name the backend that really runs
        described["compile_s"] = max(described["compile_s"].values(), default=0.0)  # compiled side by side
    metrics = queue.metrics
    state = {"last_gen_throughput": metrics.last_throughput}
    if options.speculative:
        state["avg_spec_accept_length"] = metrics.accept_length
    return {
        "engine": "pocket",
        "version": __version__,
        **described,
        **settings,
        "moe_backend_name": BACKENDS[options.moe_runner_backend],
        "served_model_name": model,
        "host": host,
        "port": port,
        "max_running_requests": 1,
        "disable_radix_cache": True,
        "startup_time": startup_s,
        "launch_command": " ".join(command),
        "internal_states": [state],
    }


def model_info(options: Options, model: str) -> dict[str, Any]:
    config = json.loads((Path(options.model_path) / "config.json").read_text())
    return {
        "model_path": options.model_path,
        "served_model_name": model,
        "tokenizer_path": options.model_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "model_type": config.get("model_type"),
        "architectures": config.get("architectures"),
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }


def models(model: str, context_length: int, started: float) -> dict[str, Any]:
    """OpenAI's list; `started` in seconds since the epoch."""
    card = {
        "id": model,
        "object": "model",
        "created": int(started),
        "owned_by": "pocket",
        "root": model,
        "parent": None,
        "max_model_len": context_length,
    }
    return {"object": "list", "data": [card]}


def openapi(routes: list[Route]) -> dict[str, Any]:
    """An OpenAPI document of every address, its methods and what it is for."""
    paths: dict[str, Any] = {}
    for route in routes:
        about = {
            "summary": route.endpoint.__doc__.strip().splitlines()[0],
            "responses": {"200": {"description": "done"}},
        }
        path = route.path.replace(":path", "")
        if path != route.path:
            name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
            about["parameters"] = [name]
        paths[path] = {method.lower(): about for method in sorted(route.methods - {"HEAD"})}
    return {"openapi": "3.1.0", "info": {"title": "pocket engine", "version": __version__}, "paths": paths}
