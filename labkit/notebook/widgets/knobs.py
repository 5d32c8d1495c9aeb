"""Every field that the engine declares, for engineers, and prompts of one's own."""

import hashlib
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import ipywidgets as W

from labkit import disk
from labkit.engines.adapter import ENGINES, Option, options
from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.notebook import render
from labkit.notebook.widgets import controls

DEFAULT = "(engine's default)"
ATTACH = "attach"
PROMPTS = "prompts"  # folder below out_dir


class Knobs:
    """One control a field of the running engine's own declaration. apply: takes the new engine section (a dict); raises
    BadInput for one that does not fit. Fields that the arms of the ladder set are theirs, and not offered."""

    def __init__(self, engine: EngineConfig, taken: set[str], apply: Callable[[dict], None], guarded):
        self._apply, self._guarded, self._taken = apply, guarded, taken
        self.said = W.HTML()
        self.use = controls.button("Use these engine settings", "check", "The next Run starts engines with them.")
        self.use.on_click(lambda _: self._guarded(self._used))
        self.box = W.VBox([])
        self.show(engine)

    def show(self, engine: EngineConfig) -> None:
        """Controls for this engine, at its present settings."""
        self.engine = engine
        given = engine.given()
        self._show(
            engine.engine, lambda name: given.get(name) if name in _reached(engine.engine) else engine.value(name)
        )

    def _show(self, kind: str, value: Callable[[str], object]) -> None:
        """Controls for an engine of this kind. value: what its fields are set to, by name."""
        tip = "Another engine has other fields; its arms are its own ladder."
        self.kind = controls.menu("engine", list(ENGINES), kind, tip, "316px")
        self.kind.observe(lambda c: self._other(c["new"]), "value")
        offered = [o for o in options(kind).values() if o.field.split(".")[0] not in self._taken]
        self.fields = {name: _text(name, tip, value(name)) for name, tip in _reached(kind).items()}
        self.fields |= {o.field: _field(o, value(o.field)) for o in offered if "." not in o.field}
        lines = "\n".join(f"{k}={v}" for k, v in (value("env") or {}).items())
        self.env = W.Textarea(value=lines, description="environment", placeholder="NAME=value, one per line", rows=2)
        words = shlex.join(value("extra_args") or ())
        self.extra = W.Text(value=words, description="extra arguments", placeholder="--flag value")
        started = [] if kind == ATTACH else [self.env, self.extra]
        self.box.children = (self.kind, *self.fields.values(), *started, self.use, self.said)

    def _other(self, kind: str) -> None:
        """The fields of another engine, empty; of the one that is in use as they are."""
        if kind == self.engine.engine:
            self.show(self.engine)
        else:
            self._show(kind, _unset)

    def section(self) -> dict:
        """The engine section that the controls describe. Raises BadInput for a line of the environment without =."""
        before = self.engine.given() if self.kind.value == self.engine.engine else {}
        out = {k: v for k, v in before.items() if k not in (*self.fields, "env", "extra_args")}
        out["engine"] = self.kind.value
        out |= {name: value for name, box in self.fields.items() if (value := _read(box)) is not None}
        env = {}
        for line in filter(str.strip, self.env.value.splitlines()):
            name, found, value = line.partition("=")
            if not found:
                raise BadInput("environment", line, "lines of the form NAME=value")
            env[name.strip()] = value.strip()
        try:
            extra = shlex.split(self.extra.value)
        except ValueError as e:
            raise BadInput("extra arguments", self.extra.value, f"words of a command line ({e})") from None
        return out | ({"env": env} if env else {}) | ({"extra_args": extra} if extra else {})

    def _used(self) -> None:
        section = self.section()
        config = EngineConfig.checked(section, "engine")
        self._apply(section)
        self.engine = config
        self.said.value = render.note("In use from the next Run on: " + json.dumps(section))


def _unset(name: str) -> object:
    """A field as no one has set it."""
    return None if name == "model" else EngineConfig.model_fields[name].get_default(call_default_factory=True)


def _field(option: Option, value: object) -> W.Widget:
    tip = f"{option.help}. {option.accepted()}".strip()
    if option.choices or isinstance(value, bool):
        choices = list(option.choices) or ["true", "false"]
        now = "true" if value is True else value
        return controls.menu(option.field, [DEFAULT, *choices], now if now in choices else DEFAULT, tip, "316px")
    return _text(option.field, tip, value)


def _text(name: str, tip: str, value: object) -> W.Widget:
    shown, style = "" if value is None or value == () else str(value), {"description_width": "122px"}
    return W.Text(value=shown, description=name, placeholder=DEFAULT, tooltip=tip, style=style)


def _reached(kind: str) -> dict[str, str]:
    """Fields without an option of their own that say what an engine runs and how it is reached, each with its tip."""
    also = {"model": "The model: a folder, a file, or a name that the engine knows."}
    if kind == ATTACH:
        also = {
            "url": "Address of a server that already runs, such as http://127.0.0.1:30000.",
            "api_key_env": "Name of the environment variable that holds its key; the key itself is not recorded.",
            "model": "Which of its models, where it has several; or where its config.json is, for the bytes.",
        }
    return {name: tip for name, tip in also.items() if name not in options(kind)}


def _read(box: W.Widget) -> object:
    """A control's value as the engine section has it, None for the engine's default."""
    value = box.value.strip()
    return None if value in ("", DEFAULT) else {"true": True, "false": False}.get(value, value)


class Prompts:
    """Text of one's own as a load. chosen: called with the workload's name and the number of prompts."""

    def __init__(self, out_dir: Path, chosen: Callable[[str, int], None], guarded):
        self._out_dir, self._chosen = out_dir, chosen
        self.text = W.Textarea(
            placeholder="Your prompts; a line of --- stands between two.", rows=6, layout=W.Layout(width="316px")
        )
        self.said = W.HTML()
        use = controls.button("Use these prompts", "check", "Measure these instead of the load in the menu.")
        use.on_click(lambda _: guarded(self._used))
        self.box = W.VBox([self.text, use, self.said])

    def _used(self) -> None:
        prompts = [p.strip() for p in re.split(r"^\s*---+\s*$", self.text.value, flags=re.M) if p.strip()]
        if not prompts:
            raise BadInput("prompts", self.text.value, "at least one prompt; a line of --- between two")
        lines = "".join(json.dumps({"prompt": p}) + "\n" for p in prompts)
        folder = disk.folder(self._out_dir / PROMPTS)
        path = folder / f"own-{hashlib.sha256(lines.encode()).hexdigest()[:8]}.jsonl"
        disk.write_text(path, lines)
        self._chosen(f"file:{path}", len(prompts))
        self.said.value = render.note(f"{len(prompts)} prompts of yours are the load now ({path}).")
