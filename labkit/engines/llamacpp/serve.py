"""llama.cpp's own server from the package xllamacpp, under llama-server's flags, for machines without llama-server.

    python -m labkit.engines.llamacpp.serve --model FILE.gguf --port P [llama-server's flags, those that the lab sends]

The server is llama.cpp's C++ one, in this process; only the reading of flags is done here.
"""

import argparse
import os
import sys
import threading

import xllamacpp


def parser() -> argparse.ArgumentParser:
    """The flags of llama-server that labkit.engines.llamacpp sends."""
    made = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    flag = made.add_argument
    flag("--model", required=True)
    flag("--host", default="127.0.0.1")
    flag("--port", type=int, default=8080)
    flag("--parallel", type=int, default=1)
    flag("--api-key", default=os.environ.get("LLAMA_API_KEY"))  # llama-server's own variable
    flag("--threads", type=int)
    flag("--threads-batch", type=int)
    flag("--batch-size", type=int)
    flag("--ctx-size", type=int)
    flag("--n-gpu-layers", type=int)
    flag("--flash-attn", choices=("on", "off", "auto"))
    flag("--cache-type-k")
    flag("--cache-type-v")
    flag("--repack", action=argparse.BooleanOptionalAction, default=True)
    flag("--spec-type")
    flag("--spec-draft-model")
    flag("--spec-draft-n-max", type=int)
    flag("--spec-ngram-mod-n-max", type=int)
    flag("--spec-ngram-mod-n-min", type=int)
    flag("--spec-ngram-mod-n-match", type=int)
    for kind in ("simple", "map-k", "map-k4v"):
        for name in ("size-n", "size-m", "min-hits"):
            flag(f"--spec-ngram-{kind}-{name}", type=int)
    flag("--spec-synth-len", type=float)
    flag("--warmup", action=argparse.BooleanOptionalAction, default=True)
    return made


def parameters(args: argparse.Namespace) -> "xllamacpp.CommonParams":
    """The flags as llama.cpp's parameters."""
    p = xllamacpp.CommonParams()
    p.model.path, p.hostnames, p.port = args.model, [args.host], args.port
    p.n_parallel, p.endpoint_slots, p.warmup = args.parallel, True, args.warmup
    p.no_extra_bufts = not args.repack
    if args.api_key:
        p.api_keys = [args.api_key]
    for name, value in (("n_batch", args.batch_size), ("n_ctx", args.ctx_size), ("n_gpu_layers", args.n_gpu_layers)):
        if value is not None:
            setattr(p, name, value)
    if args.threads is not None:
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
    if args.threads_batch is not None:
        p.cpuparams_batch.n_threads = args.threads_batch
    if args.flash_attn is not None:
        kind = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[args.flash_attn]
        p.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{kind}")
    for name, value in (("cache_type_k", args.cache_type_k), ("cache_type_v", args.cache_type_v)):
        if value is not None:
            setattr(p, name, getattr(xllamacpp.ggml_type, f"GGML_TYPE_{value.upper()}"))
    _drafting(p.speculative, args)
    return p


def _drafting(spec, args: argparse.Namespace) -> None:
    if args.spec_type is None:
        return
    kind = args.spec_type.upper().replace("-", "_")
    spec.types = [getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    if args.spec_draft_model:
        spec.draft.mparams.path = args.spec_draft_model
    for place, name, value in (
        (spec.draft, "n_max", args.spec_draft_n_max),
        (spec.ngram_mod, "n_max", args.spec_ngram_mod_n_max),
        (spec.ngram_mod, "n_min", args.spec_ngram_mod_n_min),
        (spec.ngram_mod, "n_match", args.spec_ngram_mod_n_match),
        (spec, "synth_len", args.spec_synth_len),
        *(
            (getattr(spec, f"ngram_{kind}"), name, getattr(args, f"spec_ngram_{kind}_{name}"))
            for kind in ("simple", "map_k", "map_k4v")
            for name in ("size_n", "size_m", "min_hits")
        ),
    ):
        if value is not None:
            setattr(place, name, value)


def main() -> int:
    args, unknown = parser().parse_known_args()
    if unknown:
        print(f"error: unknown argument: {unknown[0]} (the package's server; llama-server takes every one)", flush=True)
        return 2
    server = xllamacpp.Server(parameters(args))
    print(f"server is listening on {server.listening_address}", flush=True)
    threading.Event().wait()  # ends with the process; its starter watches it
    return 0


if __name__ == "__main__":
    sys.exit(main())
