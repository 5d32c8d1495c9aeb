"""Values without secrets, for everything that is written down: records, notebooks' tables, reports, lines to paste."""

import re

from labkit.engines.server_info import HIDDEN, scrub
from labkit.errors import SECRET_NAME

_QUOTED = r"""(["'])((?:(?!\2).)+)\2"""
# "--api-key", "X" of a printed list, and hf_token: "X", which a scrubbed log line has no need to know.
_LISTED = re.compile(r"""(--(?:\w+-)*(?:api-key|token|secret|password)["']\s*,\s*)""" + _QUOTED)
_TOKEN = re.compile(r"""(\b(?:hf|auth|access|refresh)_token["']?\s*[=:]\s*)""" + _QUOTED, re.IGNORECASE)
# HF_TOKEN=X of a command line such as `docker run -e HF_TOKEN=X`
_ASSIGNED = re.compile(r"\b((?:[A-Z0-9]+_)*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)=)([^\s\"']+)")
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@\"']+@", re.IGNORECASE)


def hide_text(text: str) -> str:
    """Text without the values of --api-key, Bearer and key-like names, and without names and passwords in addresses."""
    for listed in (_LISTED, _TOKEN):
        text = listed.sub(rf"\1\2{HIDDEN}\2", text)
    text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
    return _USER.sub(rf"\1{HIDDEN}@", scrub(text))


def hide(value: object) -> object:
    """A copy without secrets: texts as `hide_text` leaves them, no text under a name such as api_key, no word after a
    flag such as --api-key."""
    if isinstance(value, str):
        return hide_text(value)
    if isinstance(value, dict):
        return {k: HIDDEN if _secret(str(k)) and isinstance(v, str) and v else hide(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        flags = [None, *value[:-1]]
        return [HIDDEN if _flag(f) and isinstance(v, str) else hide(v) for f, v in zip(flags, value, strict=False)]
    return value


def _secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


def _flag(word: object) -> bool:
    return isinstance(word, str) and word.startswith("--") and "=" not in word and _secret(word)
