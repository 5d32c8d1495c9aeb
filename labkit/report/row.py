"""One line for a leaderboard or an issue thread: a number that carries its own conditions."""

from labkit.engines.secrets import hide_text
from labkit.errors import BadInput
from labkit.measure.results import Result, results_of
from labkit.records.reader import Run
from labkit.report.verdict import conditions


def rows(run: Run, arm: str | None = None) -> list[str]:
    """A line for each measured arm, or for `arm`. Raises BadInput for an arm that the record does not have."""
    found = results_of(run)
    if arm is not None and arm not in found:
        raise BadInput("--arm", arm, "one of " + ", ".join(found))
    if not found:
        raise BadInput("run", str(run.directory), "a record with a measured arm")
    return [_line(run, r) for name, r in found.items() if arm in (None, name)]


def _line(run: Run, r: Result) -> str:
    parts = [f"{r.tpot.to('ms').quantity('.3f')} per token ● measured", f"TTFT {r.ttft.to('ms').quantity('.1f')}"]
    if r.accept is not None:
        parts.append(f"a {r.accept.quantity('.2f')} tokens per verify")
    meta = run.meta
    doubts = f"{len(r.warnings)} warning{'s' if len(r.warnings) != 1 else ''}" + (
        f": {'; '.join(r.warnings)}" if r.warnings else ""
    )
    command = (run.described(r.name).get("launch") or {}).get("command") or "attached server"
    git = meta.get("git") or {}
    commit = f"labkit {str(git.get('commit', 'unknown'))[:10]}{' with changes' if git.get('dirty') else ''}"
    parts += [conditions(run, r), command, commit, f"{str(meta.get('created_utc', ''))[:16]}Z", f"run {meta.get('id')}"]
    return one_line(f"{r.name}: " + " | ".join([*parts, doubts]))


def one_line(text: str) -> str:
    """Without line breaks, control characters or keys: it is pasted where a line ends a row."""
    text = "".join(c if c.isprintable() else " " for c in hide_text(text))
    return " ".join(text.split())
