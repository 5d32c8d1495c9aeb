"""Is a person at a front end, or does the notebook run headless?"""

import os

_FRONT_ENDS = ("JPY_SESSION_NAME", "VSCODE_PID", "VOILA_REQUEST_URL")


def is_live() -> bool:
    """True when sliders make sense: jupyter_server sets JPY_SESSION_NAME for the kernels that it starts, and
    papermill, nbval and nbconvert do not. `LABKIT_LIVE=0` or `1` overrides."""
    forced = os.environ.get("LABKIT_LIVE")
    if forced is not None:
        return forced.lower() not in ("", "0", "false", "no")
    return any(name in os.environ for name in _FRONT_ENDS)
