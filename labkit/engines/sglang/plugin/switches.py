"""Two small switches for measuring on a machine that is paid by the minute."""

import logging
import os
import time

log = logging.getLogger("labkit.plugin")


def hold(path: str | None, poll_s: float = 0.2) -> float:
    """In a child process: wait until the file `path` exists. Returns the seconds waited.

    SGLang's imports take longer than its start-up; with this, several servers import side by side and then start one
    at a time on idle CPUs. Each waiting process leaves a mark, PATH.held.PID. The main process never waits.
    """
    import multiprocessing

    if not path or multiprocessing.current_process().name == "MainProcess":
        return 0.0
    start = time.monotonic()
    with open(f"{path}.held.{os.getpid()}", "w"):
        pass
    while not os.path.exists(path):
        time.sleep(poll_s)
    waited = time.monotonic() - start
    log.warning("labkit plugin: held %.1f s for %s", waited, path)
    return waited


def after_flush(result, scheduler, *args, **kwargs):
    """Hook after Scheduler.flush_cache: take the simulated accept length from the file named by the switch.

    SGLang reads `spec_utils.SIMULATE_ACC_LEN` afresh in every verify step, on the CPU, so arms of different accept
    lengths can alternate on one server. The lab flushes before every request. An empty or absent file changes nothing.
    """
    from labkit.engines.sglang.plugin import variables

    wanted = read_accept_length(os.environ.get(variables.ACCEPT_FILE))
    if wanted is not None:
        from sglang.srt.speculative import spec_utils

        if spec_utils.SIMULATE_ACC_LEN != wanted:
            spec_utils.SIMULATE_ACC_LEN = wanted
            # As in the launcher: accepted tokens are the draft's own, so the next round computes on real states.
            spec_utils.SIMULATE_ACC_TOKEN_MODE = "real-draft-token"
            log.warning("labkit plugin: simulated accept length is now %g", wanted)
    return result


def read_accept_length(path: str | None) -> float | None:
    """The number in the file (-1 turns simulation off, as in SGLang), or None when there is none to be read."""
    if not path:
        return None
    try:
        with open(path) as file:
            return float(file.read())
    except (OSError, ValueError):
        return None
