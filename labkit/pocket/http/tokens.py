"""Text to tokens and back, for clients: SGLang's /tokenize and /detokenize."""

from collections.abc import Mapping
from typing import Any

from labkit.errors import BadInput
from labkit.pocket.protocol.fields import Fields
from labkit.pocket.protocol.job import MAX_PROMPTS
from labkit.pocket.tokenizer import Tokenizer


def tokenize(document: Mapping[str, Any], tokenizer: Tokenizer, context: int) -> dict[str, Any]:
    """{"prompt": text or list of texts} -> {"tokens", "count", "max_model_len"}, lists of them for a list."""
    fields = Fields(document)
    prompt, special = fields.take("prompt"), fields.flag("add_special_tokens", True)
    fields.ignore("model")
    fields.done()
    listed = isinstance(prompt, list)
    texts = prompt if listed else [prompt]
    if not texts or len(texts) > MAX_PROMPTS or not all(isinstance(t, str) for t in texts):
        raise BadInput("prompt", prompt, f"a string, or a list of 1 to {MAX_PROMPTS} strings")
    tokens = [tokenizer.encode(t, special=special) for t in texts]
    counts = [len(t) for t in tokens]
    return {
        "tokens": tokens if listed else tokens[0],
        "count": counts if listed else counts[0],
        "max_model_len": context,
    }


def detokenize(document: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """{"tokens": ids or list of lists of ids} -> {"text"}, a list of texts for a list of lists."""
    fields = Fields(document)
    tokens, skip = fields.take("tokens"), fields.flag("skip_special_tokens", True)
    fields.ignore("model")
    fields.done()
    listed = isinstance(tokens, list) and bool(tokens) and isinstance(tokens[0], list)
    lists = tokens if listed else [tokens]
    known = len(tokenizer.pieces)
    if not all(isinstance(ids, list) and all(type(i) is int and 0 <= i < known for i in ids) for ids in lists):
        raise BadInput("tokens", tokens, f"a list of token ids from 0 to {known - 1}, or a list of such lists")
    texts = [tokenizer.decode(ids, skip_special_tokens=skip) for ids in lists]
    return {"text": texts if listed else texts[0]}
