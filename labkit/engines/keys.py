"""How an engine gets its API key. Every user of a machine may read command lines (`ps`), so the key is on one only
where the engine has no other way, and then that is said."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkstemp

from labkit.engines.adapter import Launch
from labkit.engines.config import EngineConfig
from labkit.engines.owner import runtime_dir

SHOWN = "the API key is on the engine's command line, which every user of that machine can read while it runs: {}"


@contextlib.contextmanager
def handed(config: EngineConfig, launch: Launch, key: str | None) -> Iterator[tuple[list[str], dict[str, str], str]]:
    """(words behind the command, variables of the engine alone, a warning or ""). What they name is there until the
    block ends, by when the engine has read it."""
    if key is None or launch.key_flag is None:
        yield [], {}, ""
    elif config.command_prefix:
        why = f"behind {config.command_prefix[0]} it has no other way to it"
        yield [launch.key_flag, key], {}, SHOWN.format(why)
    elif launch.key_env is not None:
        yield [], {launch.key_env: key}, ""
    elif launch.key_config is None:
        yield [launch.key_flag, key], {}, SHOWN.format("it reads no key from elsewhere")
    elif any(w == launch.key_config or w.startswith(f"{launch.key_config}=") for w in launch.argv):
        yield [launch.key_flag, key], {}, SHOWN.format(f"{launch.key_config} of extra_args leaves no room for ours")
    else:
        with _file(launch.key_flag, key) as path:
            yield [launch.key_config, str(path)], {}, ""


@contextlib.contextmanager
def _file(flag: str, key: str) -> Iterator[Path]:
    """A YAML file with the key that this user alone can read; it goes when the block ends, and what a killed lab left
    goes with the next one's."""
    import yaml

    folder = runtime_dir()
    for old in folder.glob("key-*.yaml"):
        if not _alive(int(old.name.split("-")[1])):
            old.unlink(missing_ok=True)
    handle, name = mkstemp(".yaml", f"key-{os.getpid()}-", folder)  # mode 0600
    try:
        with open(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump({flag.removeprefix("--"): key}, file)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
