"""The tokenizer: byte-level BPE over generated texts, digits one by one (arithmetic is learned far faster so)."""

import json
from collections.abc import Iterable
from pathlib import Path

EOS, PAD = "<|eos|>", "<|pad|>"

# A user message becomes exactly the training prompt. A system message stands before it, as text.
CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}Question: {{ m['content'] | trim }}\nAnswer:"
    "{% elif m['role'] == 'assistant' %} {{ m['content'] | trim }}<|eos|>{% else %}{{ m['content'] | trim }}\n"
    "{% endif %}{% endfor %}"
)


def build(texts: Iterable[str], vocab: int):
    """Trains `tokenizers.Tokenizer` with exactly `vocab` pieces; raises ValueError when the texts hold too few
    pairs.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    # A newline keeps its indentation; words and runs of punctuation keep one space before them.
    pieces = Regex(r"\n *|  +| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s")
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=[EOS, PAD],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    if tok.get_vocab_size() != vocab:
        raise ValueError(f"vocabulary: the texts give {tok.get_vocab_size()} pieces, {vocab} wanted")
    return tok


def write_config(folder: Path) -> None:
    """tokenizer_config.json, so that transformers' AutoTokenizer loads the folder."""
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": EOS,
                "pad_token": PAD,
                "bos_token": None,
                "unk_token": None,
                "model_max_length": 32768,
                "clean_up_tokenization_spaces": False,
                "chat_template": CHAT_TEMPLATE,
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
