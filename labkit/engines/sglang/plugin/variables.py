"""The plugin's switches by name; what each does stands at the head of the package."""

import os

FP8_HEAD = "SGLANG_ENABLE_FP8_LM_HEAD"
TENSOR_ONLY = "LABKIT_TENSOR_ONLY_HEAD"
ACCEPT_FILE = "LABKIT_SIMULATE_ACC_LEN_FILE"
HOLD_FILE = "LABKIT_HOLD_FILE"
DUMMY = "LABKIT_DUMMY_WEIGHTS"


def on(name: str) -> bool:
    """Whether a switch is set to something other than 0, false or nothing."""
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")
