"""`labkit sweep --scheduler`: options of a Dask cluster, and the executor behind them."""

import argparse
from typing import TYPE_CHECKING

from labkit.cli._turn import say
from labkit.errors import BadInput

if TYPE_CHECKING:
    from labkit.measure.sweep.cluster import Cluster
    from labkit.measure.sweep.points import Plan

_BESIDE = ("insecure", "tls_ca", "tls_cert", "tls_key")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group(
        "on a Dask cluster (pip install 'labkit[cluster]')",
        "Each worker that was started with `--resources engine=1` measures a block at a time. --wait: how long a block"
        " waits for its worker's machine, and the sweep for any worker.",
    )
    cluster.add_argument("--scheduler", metavar="ADDRESS", help="tls://HOST:PORT, or tcp://HOST:PORT with --insecure")
    cluster.add_argument("--insecure", action="store_true", help="allow a tcp:// scheduler: no encryption, no identity")
    for what, text in (("ca", "certificates that are trusted"), ("cert", "our certificate"), ("key", "its key")):
        default = "default: Dask's configuration, distributed.comm.tls"
        cluster.add_argument(f"--tls-{what}", metavar="PEM", help=f"{text} ({default})")


def wanted(args: argparse.Namespace) -> bool:
    """Whether a cluster measures. Raises BadInput for its options without --scheduler."""
    for name in _BESIDE:
        if getattr(args, name) and not args.scheduler:
            raise BadInput(f"--{name.replace('_', '-')}", getattr(args, name), "--scheduler beside it")
    return bool(args.scheduler)


def cluster(args: argparse.Namespace, plan: "Plan") -> "Cluster":
    """The executor of --scheduler, a context manager. Raises BadInput, LabError where nobody answers."""
    from labkit.measure.sweep.cluster import Cluster, reachable
    from labkit.measure.sweep.cluster_access import connect

    reachable(plan)
    client = connect(args.scheduler, insecure=args.insecure, ca=args.tls_ca, cert=args.tls_cert, key=args.tls_key)
    return Cluster(client, plan, args.wait, say)
