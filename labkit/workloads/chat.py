"""A model's own chat template, rendered as Hugging Face renders it, without loading the model or its tokenizer."""

import json
from datetime import datetime
from pathlib import Path

from labkit.errors import BadInput


def render(folder: str | Path, user: str, *, thinking: bool) -> str | None:
    """The prompt text of one user message in the template of a model folder; None where the folder has no template.

    thinking: passed on as `enable_thinking`, which templates without such a mode ignore. The template is foreign code
    and runs in jinja2's sandbox. Raises BadInput for a template that fails.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source, special = _template(Path(folder))
    if source is None:
        return None
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    sandbox.globals["raise_exception"] = _refuse
    try:
        return sandbox.from_string(source).render(
            messages=[{"role": "user", "content": user}],
            add_generation_prompt=True,
            enable_thinking=thinking,
            **special,
        )
    except TemplateError as e:
        raise BadInput("chat template", str(folder), f"a template that renders one user message ({e})") from None


def _refuse(message: str):
    from jinja2 import TemplateError

    raise TemplateError(message)


def _template(folder: Path) -> tuple[str | None, dict]:
    """(template, special tokens by name). Newer folders keep the template in a file of its own."""
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    file = folder / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.exists() else config.get("chat_template")
    if isinstance(source, list):  # several named templates
        source = next((t["template"] for t in source if t.get("name") == "default"), None)
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    tokens = {name: config[name] for name in names if config.get(name) is not None}
    return source, {k: v["content"] if isinstance(v, dict) else v for k, v in tokens.items()}
