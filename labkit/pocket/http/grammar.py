"""Text that a JSON schema or a regular expression allows: llguidance says which tokens may come next."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from labkit.errors import BadInput
from labkit.pocket.protocol.job import Grammar
from labkit.pocket.tokenizer import Tokenizer

_TOKENIZERS: WeakKeyDictionary = WeakKeyDictionary()  # made at the first use: most servers never need one


def _prepared(tokenizer: Tokenizer):
    import llguidance

    if tokenizer not in _TOKENIZERS:
        _TOKENIZERS[tokenizer] = llguidance.LLTokenizer(
            tokenizer.source, n_vocab=len(tokenizer.pieces), eos_token=tokenizer.eos
        )
    return _TOKENIZERS[tokenizer]


def _compiled(grammar: Grammar) -> str:
    from llguidance import LLMatcher

    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    return LLMatcher.grammar_from_json_schema(grammar.text)


def check(grammar: Grammar, tokenizer: Tokenizer) -> None:
    """Raises BadInput, naming the field, for a grammar that cannot be followed."""
    from llguidance import LLMatcher

    try:
        wrong = LLMatcher.validate_grammar(_compiled(grammar), _prepared(tokenizer))
    except ValueError as e:
        wrong = str(e)
    if wrong:
        accepted = f"a {grammar.kind.replace('_', ' ')} that llguidance can follow ({' '.join(wrong.split())[:200]})"
        raise BadInput(grammar.field, grammar.text, accepted)


class Constraint:
    """One request's place in its grammar; called before each token with the output so far and the logits to change."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer):
        from llguidance import LLMatcher

        self._matcher, self._read = LLMatcher(_prepared(tokenizer), _compiled(grammar)), 0
        self._end = tokenizer.eos

    def __call__(self, tokens: Sequence[int], logits: np.ndarray) -> None:
        new = [int(t) for t in tokens[self._read :]]
        self._read += len(new)
        if new and not self._matcher.is_stopped():
            self._matcher.consume_tokens(new)
        if self._matcher.is_error():
            raise RuntimeError(self._matcher.get_error())
        if self._matcher.is_stopped():
            allowed = np.zeros(len(logits), bool)
            allowed[self._end] = True
        else:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            allowed = np.unpackbits(bits, bitorder="little")[: len(logits)].astype(bool)
        logits[~allowed] = -np.inf
