"""Running the engine's command behind a prefix such as [ssh, host] or [docker, run, ...]: it must stop when we do.

Neither ssh nor docker ends the far command when the near one is killed. What always reaches the far side is the end of
standard input, so a few lines of POSIX sh wait for that there and end the engine's process group.
"""

import re
import shlex
from pathlib import PurePath

from labkit.errors import BadInput

WAIT_FOR_STDIN = """
exec 3<&0
if command -v setsid >/dev/null 2>&1; then setsid "$@" </dev/null 3<&- & else "$@" </dev/null 3<&- & fi
engine=$!
(
  trap '' TERM
  cat <&3 >/dev/null
  kill -TERM -- -$engine 2>/dev/null || kill -TERM $engine 2>/dev/null
  for second in 1 2 3 4 5 6 7 8; do kill -0 $engine 2>/dev/null || exit; sleep 1; done
  kill -KILL -- -$engine 2>/dev/null || kill -KILL $engine 2>/dev/null
) &
watch=$!
exec 3<&-
wait $engine
code=$?
kill -KILL $watch 2>/dev/null
exit $code
""".strip()


def wrap(prefix: tuple[str, ...], argv: list[str], env: dict[str, str]) -> list[str]:
    """The local argv: prefix, then a shell that sets `env`, runs `argv` and watches its standard input.

    ssh passes its arguments to a shell on the far side as one string, so they are quoted for it. Raises BadInput for a
    prefix that cuts standard input off: the far side would take that for our end and stop at once.
    """
    tool = PurePath(prefix[0]).name
    if tool in ("docker", "podman") and not any(re.fullmatch(r"-[a-hj-z]*i[a-z]*|--interactive", p) for p in prefix):
        raise BadInput("engine.command_prefix", list(prefix), "docker run with -i, so that it ends when the lab does")
    if tool == "ssh" and any(p in ("-n", "-f") for p in prefix):
        raise BadInput("engine.command_prefix", list(prefix), "ssh without -n and -f, which cut standard input off")
    assignments = [f"{name}={value}" for name, value in env.items()]
    far = ["sh", "-c", WAIT_FOR_STDIN, "sh", "env", *assignments, *argv]
    if tool == "ssh":
        return [*prefix, shlex.join(far)]
    return [*prefix, *far]
