"""`labkit check`: configuration checks on a running server."""

import argparse
import json

HELP = "is each option in effect on a running server: asked, seen, where, verdict"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", required=True, help="address of the server, http://HOST:PORT")
    parser.add_argument(
        "--expect",
        required=True,
        help="what should be on: words for arms of the ladder (a wrong one lists them), or drafting (any)",
    )
    parser.add_argument("--log", help="the server's log file, for options that only a log proves")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable the server was started with; may be given several times",
    )
    parser.add_argument("--draft", metavar="STEPS,TOPK,TOKENS", help="what was asked of drafting (default 3,1,4)")
    parser.add_argument("--requests", type=int, default=3, help="short probing generations; 0 sends none")
    parser.add_argument("--api-key-env", help="NAME of the variable that holds the server's API key")


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a check fails."""
    from labkit.checks import configuration, expected, observe
    from labkit.engines.attach import api_key
    from labkit.engines.config import EngineConfig, Speculative
    from labkit.errors import BadInput

    expect = expected(args.expect)
    server = EngineConfig.from_dict({"engine": "attach", "url": args.url, "api_key_env": args.api_key_env})
    env = {}
    for item in args.env:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise BadInput("env", item, "NAME=VALUE")
        env[name] = value
    if not 0 <= args.requests <= 100:
        raise BadInput("requests", args.requests, "a number from 0 to 100")
    spec = None
    if args.draft:
        numbers = dict(zip(("steps", "topk", "draft_tokens"), args.draft.split(","), strict=False))
        spec = Speculative.checked(numbers, "draft")
    seen = observe(server.url, api_key=api_key(server), log_path=args.log, env=env, requests=args.requests)
    checks = configuration(seen, expect, speculative=spec)
    failed = any(c.verdict == "fail" for c in checks)
    if args.json:
        print(json.dumps({"checks": [c.as_dict() for c in checks]}, indent=1))
        return int(failed)
    rows = [("check", "asked", "seen", "verdict"), *((c.name, c.asked, c.seen, c.verdict) for c in checks)]
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    for row, check in zip(rows, [None, *checks], strict=True):
        print("  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=False)) + f"  {row[3]}")
        if check is not None:
            print(f"    where: {check.where}" + (f"; {check.note}" if check.note else ""))
    return int(failed)
