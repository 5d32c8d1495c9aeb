"""What SGLang loads from the entry point group `sglang.srt.plugins`, in every one of its processes.

Switches, all environment variables, all off by default:

    SGLANG_ENABLE_FP8_LM_HEAD=1      FP8 head, shared with the NEXTN draft as a whole module (head.py). SGLang 0.5.23
                                     does not know this variable; on a release that does, the plugin steps aside.
    LABKIT_TENSOR_ONLY_HEAD=1        teaching: no module sharing, so that the draft reads FP8 without its scales
    LABKIT_SIMULATE_ACC_LEN_FILE=F   take SGLANG_SIMULATE_ACC_LEN anew from file F at every /flush_cache (switches.py)
    LABKIT_HOLD_FILE=F               wait, imports done and the GPU untouched, until file F exists (switches.py)
    LABKIT_DUMMY_WEIGHTS=0           keep the release's own values under `--load-format dummy` (dummy.py)

This module and its siblings import torch and sglang only inside functions, and of labkit only each other.
"""

import logging
import os
import sys

from labkit.engines.sglang.plugin.variables import ACCEPT_FILE, DUMMY, FP8_HEAD, HOLD_FILE, TENSOR_ONLY, on

log = logging.getLogger("labkit.plugin")

_LOADER = "sglang.srt.model_loader.loader"


def register() -> None:
    """Entry point. Registers the hooks that the switches ask for.

    Ends the process (SystemExit, which SGLang's loader does not swallow) when the switches contradict the command line.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from labkit.engines.sglang.plugin import dummy, head, switches

    wanted = on(FP8_HEAD) and not _engine_knows(FP8_HEAD)
    if wanted:
        contradiction = head.contradiction(sys.argv, tensor_only=on(TENSOR_ONLY))
        if contradiction:
            raise SystemExit(f"labkit plugin: {contradiction}")
    switches.hold(os.environ.get(HOLD_FILE))

    if os.environ.get(DUMMY, "1") != "0":
        HookRegistry.register(f"{_LOADER}.initialize_dummy_weights", dummy.after_initialize, HookType.AFTER)
    if wanted:
        for loader in ("DefaultModelLoader", "DummyModelLoader"):
            HookRegistry.register(f"{_LOADER}.{loader}.load_model", head.after_load, HookType.AFTER)
    elif on(FP8_HEAD):
        log.warning("labkit plugin: this SGLang knows %s itself; the plugin steps aside", FP8_HEAD)
    if os.environ.get(ACCEPT_FILE):
        target = "sglang.srt.managers.scheduler.Scheduler.flush_cache"
        HookRegistry.register(target, switches.after_flush, HookType.AFTER)
    log.info("labkit plugin: registered (pid %d, fp8 head %s)", os.getpid(), wanted)


def _engine_knows(variable: str) -> bool:
    """Whether the installed SGLang declares an environment variable of this name."""
    try:
        from sglang.srt.environ import envs
    except ImportError:
        return False
    return hasattr(type(envs), variable) or hasattr(envs, variable)
