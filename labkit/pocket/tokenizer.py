"""Text to tokens and back. Streaming decodes byte by byte, so that no half UTF-8 character ever leaves the server."""

import codecs
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as _Tokenizer

from labkit.errors import BadInput


def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes every byte as one printable character: printable Latin-1 as itself, the others, in order,
    as the characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


class Tokenizer:
    """The tokenizer of a model folder (tokenizer.json, tokenizer_config.json).

    `source` is tokenizer.json itself, `pieces[id]` a token's bytes, `special` the ids that skip_special_tokens drops,
    `eos` the end token's id or None.
    Errors: BadInput for a folder without a readable tokenizer.
    """

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        try:
            self.source = (folder / "tokenizer.json").read_text(encoding="utf-8")
            self._inner = _Tokenizer.from_str(self.source)
            self.config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        except Exception as e:  # the package raises plain Exception for every kind of damage
            accepted = f"a folder with tokenizer.json and tokenizer_config.json ({e})"
            raise BadInput("model_path", str(folder), accepted) from e
        table = _byte_of_character()
        added = self._inner.get_added_tokens_decoder()
        self.special = frozenset(i for i, token in added.items() if token.special)
        self.pieces: list[bytes] = []
        for i in range(self._inner.get_vocab_size(with_added_tokens=True)):
            piece = self._inner.id_to_token(i) or ""
            plain = i in added or any(c not in table for c in piece)
            self.pieces.append(piece.encode() if plain else bytes(table[c] for c in piece))
        self.eos = self._inner.token_to_id(_content(self.config.get("eos_token")) or "")
        file = folder / "chat_template.jinja"
        self._chat = file.read_text(encoding="utf-8") if file.exists() else self.config.get("chat_template")

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """special: let the tokenizer put its own markers (a BOS, if it has one) around the text."""
        return self._inner.encode(text, add_special_tokens=special).ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        out = Detokenizer(self, skip_special_tokens)
        return out.push(ids) + out.end()

    def chat(self, messages: list[dict], given: Mapping[str, Any] | None = None) -> str:
        """Messages [{"role", "content"}] through the model's chat template, ready for the assistant's turn.

        given: further variables of the template (`tools`, `enable_thinking`, ...).
        """
        import jinja2

        if not self._chat:
            raise BadInput("messages", len(messages), "a model with a chat template; this one has none")
        try:
            return self._template.render(
                {"tools": None}
                | dict(given or {})
                | {
                    "messages": messages,
                    "add_generation_prompt": True,
                    "bos_token": _content(self.config.get("bos_token")) or "",
                    "eos_token": _content(self.config.get("eos_token")) or "",
                }
            )
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as e:
            raise BadInput("messages", [m["role"] for m in messages], f"what the chat template takes ({e})") from e

    @cached_property
    def _template(self):
        """The compiled template, made at the first chat request: importing jinja2 is a tenth of a server's start."""
        import jinja2
        import jinja2.sandbox

        def refuse(message):
            raise jinja2.TemplateError(message)

        # A template is a program that came with the weights, so it runs in the sandbox.
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = refuse
        return environment.from_string(self._chat)


class Detokenizer:
    """Tokens in, whole characters out: bytes of an unfinished character wait for the next token."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True):
        self._pieces = tokenizer.pieces
        self._dropped = tokenizer.special if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: list[int]) -> str:
        pieces, dropped = self._pieces, self._dropped
        return self._decoder.decode(b"".join([pieces[i] for i in ids if i not in dropped and i < len(pieces)]))

    def end(self) -> str:
        """What is left when generation ends: U+FFFD for a character that never became whole."""
        return self._decoder.decode(b"", True)


def _content(token: str | dict | None) -> str | None:
    """tokenizer_config.json writes a special token as a string or as {"content": ...}."""
    return token.get("content") if isinstance(token, dict) else token
