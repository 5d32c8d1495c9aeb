"""`labkit check`: is each option in effect on a running server, and, against a second one, does it pay."""

import argparse
import json
import textwrap
from typing import TYPE_CHECKING

from labkit.cli import _turn

if TYPE_CHECKING:
    from labkit.checks import Check
    from labkit.checks.causes import Cause

HELP = "verify that requested options are in effect on a running server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", required=True, help="address of the server, http://HOST:PORT")
    parser.add_argument(
        "--expect",
        help="options that should be in effect: names of the ladder's arms (an unknown name lists them), or drafting "
        "(of any kind); default: only what any measurement needs",
    )
    parser.add_argument("--log", help="the server's log file, for options that only a log proves")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an environment variable that the server was started with; may be repeated",
    )
    parser.add_argument("--draft", metavar="STEPS,TOPK,TOKENS", help="the requested drafting (default 3,1,4)")
    parser.add_argument("--requests", default=3, help="short probe requests; 0: none (default 3)")
    parser.add_argument("--temperature", help="also verify that this temperature applies (several seeds)")
    parser.add_argument(
        "--against", metavar="URL", help="the same server without the last change: also verify that the change pays"
    )
    parser.add_argument("--repeats", default=5, help="with --against: measured passes, arms alternating (default 5)")
    parser.add_argument("--api-key-env", help="NAME of the variable that holds the server's API key")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a check fails."""
    from labkit import fields
    from labkit.checks import causes, configuration, expected, observe
    from labkit.checks.checks import of_config
    from labkit.engines.attach import api_key
    from labkit.engines.config import EngineConfig, Speculative
    from labkit.errors import BadInput

    expect = expected(args.expect) if args.expect is not None else None
    server = EngineConfig.from_dict({"engine": "attach", "url": args.url, "api_key_env": args.api_key_env})
    env = {}
    for item in args.env:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise BadInput("env", item, "NAME=VALUE")
        env[name] = value
    requests = fields.check(fields.whole(0, 100), "requests", args.requests)
    repeats = fields.check(fields.whole(1, 100), "repeats", args.repeats)
    temperature = args.temperature and fields.check(fields.real(0.01, 10), "temperature", args.temperature)
    spec = None
    if args.draft:
        numbers = dict(zip(("steps", "topk", "draft_tokens"), args.draft.split(","), strict=False))
        spec = Speculative.checked(numbers, "draft")
    key = api_key(server)
    where = f"--url {server.url}"
    with _turn.taken(args, urls=[server.url, *([args.against] if args.against else [])]):
        seen = observe(server.url, api_key=key, log_path=args.log, env=env, requests=requests, temperature=temperature)
        checks = of_config(seen, server) if expect is None else configuration(seen, expect, speculative=spec)
        found = causes.of_checks(checks, where=where)
        if args.against:
            more, found = _against(args.against, server.url, key, repeats, checks, where, found)
            checks = [c for c in checks if c.name != "drafting pays"] + more
    failed = any(c.verdict == "fail" for c in checks)
    if args.json:
        document = {"checks": [c.as_dict() for c in checks], "candidates": [c.as_dict() for c in found]}
        print(json.dumps(document, indent=1))
    else:
        print("\n".join(lines(checks, found)))
    return int(failed)


def _against(url: str, here: str, key: str | None, repeats: int, checks: list["Check"], where: str, found: tuple):
    """(benefit checks, candidate causes) of the server at `here` against the one at `url`, requests alternating."""
    from labkit.checks import benefit, causes, observed
    from labkit.engines import survey
    from labkit.engines.config import EngineConfig
    from labkit.measure import estimates, session

    before = EngineConfig.from_dict({"engine": "attach", "url": url}, "against").url
    servers = {name: survey.look(u, key) for name, u in (("before", before), ("after", here))}
    infos = {name: found.info for name, found in servers.items()}
    arms = [
        session.Side.of(name, u, infos[name], servers[name].dialect, key)
        for name, u in (("before", before), ("after", here))
    ]
    rows = list(session.interleave(arms, observed.prompts(infos["after"], 3), repeats=repeats, warmup=1))
    sides = [benefit.Side(a.name, [r for r in rows if r["arm"] == a.name], infos[a.name]) for a in arms]
    more = benefit.of(sides)
    if not all(s.good for s in sides):
        return more, found
    judged = causes.judge(
        "after against before",
        estimates.compare(sides[1].good, sides[0].good),
        fp8_head=any(c.name == "FP8 head" and c.verdict == "pass" for c in checks),
        spread=max(estimates.estimate(s.good).tpot.spread for s in sides),
        checks=checks,
        where=where,
    )
    return more, judged.causes or found


def lines(checks: list["Check"], found: tuple["Cause", ...] = ()) -> list[str]:
    """The checks as a table of text, what follows from each below it, then candidate causes."""
    widths = (24, 26, 48)
    out = [_row(("check", "asked", "seen"), widths)[0] + "verdict"]
    for c in checks:
        first, *rest = _row((c.name, c.asked, c.seen), widths)
        out += [first + c.verdict, *rest]
        out += textwrap.wrap(f"{c.where}" + (f": {c.note}" if c.note else ""), 96, initial_indent=" " * 4)
    if found:
        out.append("candidate causes, none proved by this alone:")
        out += [f"  {i}. {c.line()}" for i, c in enumerate(found, 1)]
    return out


def _row(cells: tuple[str, ...], widths: tuple[int, ...]) -> list[str]:
    wrapped = [textwrap.wrap(c, w) or [""] for c, w in zip(cells, widths, strict=True)]
    height = max(map(len, wrapped))
    return [
        "".join((w[i] if i < len(w) else "").ljust(n + 2) for w, n in zip(wrapped, widths, strict=True))
        for i in range(height)
    ]
