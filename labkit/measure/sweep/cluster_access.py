"""How a Dask scheduler is reached: over TLS, or in the clear where somebody said so."""

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from labkit.errors import BadInput, LabError

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 20.0
_ACCEPTED = "tls://HOST:PORT, or tcp://HOST:PORT with --insecure"


def connect(
    address: str, *, insecure: bool = False, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> "Client":
    """A client of this scheduler. ca, cert, key: PEM files, else what Dask's own configuration names.

    Raises BadInput for an address in the clear without `insecure`, for files that are missing; LabError where nobody
    answers. There is no exception for this machine: whoever reaches the scheduler runs code as its user, and on a
    shared machine that is everybody who has an account.
    """
    tls = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    scheme = _checked(address, insecure, {k: v for k, v in tls.items() if v is not None})
    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError:
        raise LabError("--scheduler needs Dask: pip install 'labkit[cluster]'") from None
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what it has to say is said here, in one line
    security = Security()
    if scheme == "tls":
        given = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
        security = Security(require_encryption=True, **{k: v for k, v in given.items() if v is not None})
        for option, value in (("--tls-ca", security.tls_ca_file), ("--tls-cert", security.tls_client_cert)):
            if not value:
                where = "distributed.comm.tls of Dask's configuration"
                raise BadInput(option, value, f"a PEM file, here or in {where}: tls:// needs one")
    try:
        return Client(address, timeout=CONNECT_S, security=security, set_as_default=False, name="labkit-sweep")
    except (OSError, RuntimeError, ValueError) as e:
        why = str(e).strip().splitlines() or [type(e).__name__]
        raise LabError(f"no scheduler answers at {address}: {why[-1]}") from None


def _checked(address: str, insecure: bool, tls: dict[str, str]) -> str:
    """The scheme of an address that may be used. Raises BadInput."""
    scheme, host, port = "", None, None
    with contextlib.suppress(ValueError):
        parts = urlsplit(address)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    if scheme not in ("tcp", "tls") or not host or not port:
        raise BadInput("--scheduler", address, _ACCEPTED)
    if scheme == "tcp" and not insecure:
        clear = "in the clear anybody on the way can read it, and run code on the workers"
        raise BadInput("--scheduler", address, f"{_ACCEPTED}: {clear}")
    if scheme == "tls" and insecure:
        raise BadInput("--insecure", address, "a tcp:// address; tls:// is not insecure")
    for option, value in tls.items():
        if scheme == "tcp":
            raise BadInput(option, value, "a tls:// address beside it")
        if not Path(value).is_file():
            raise BadInput(option, value, "an existing PEM file")
    return scheme
