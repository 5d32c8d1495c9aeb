"""Text to tokens and back, and stop strings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from labkit.errors import BadInput
from labkit.pocket.http.stops import Stops
from labkit.pocket.tokenizer import Detokenizer, Tokenizer


@pytest.fixture(scope="module")
def tokenizer(folder):
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def library(folder):
    return Library.from_file(str(folder / "tokenizer.json"))


IDS = st.lists(st.integers(0, 316), max_size=40)


@given(ids=IDS, skip=st.booleans())
def test_decoding_is_the_librarys(tokenizer, library, ids, skip):
    assert tokenizer.decode(ids, skip_special_tokens=skip) == library.decode(ids, skip_special_tokens=skip)


@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 5), min_size=1))
def test_streaming_text_never_splits_a_character(tokenizer, text, cuts):
    ids, out, pieces = tokenizer.encode(text), Detokenizer(tokenizer), []
    while ids:
        n = cuts[len(pieces) % len(cuts)]
        pieces.append(out.push(ids[:n]))
        ids = ids[n:]
    assert all("\ufffd" not in p for p in pieces) or "\ufffd" in text
    assert "".join(pieces) + out.end() == text


def test_half_a_character_at_the_end_is_marked(tokenizer):
    ids = tokenizer.encode("🙂")
    assert len(ids) > 1
    assert tokenizer.decode(ids[:-1]) == "\ufffd"


def test_chat_template_and_its_refusal(tokenizer):
    text = tokenizer.chat([{"role": "user", "content": "the words"}])
    assert text == "user: the words\nassistant:"
    with pytest.raises(BadInput, match="no tools"):
        tokenizer.chat([{"role": "tool", "content": ""}])


def test_a_folder_without_tokenizer_is_named(tmp_path):
    with pytest.raises(BadInput, match="tokenizer.json"):
        Tokenizer(tmp_path)


@settings(max_examples=300)
@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(1, 6), min_size=1),
    trim=st.booleans(),
)
def test_stops_in_pieces_are_stops_in_the_whole(text, stops, cuts, trim):
    watch, out, rest, n = Stops(tuple(stops), trim), "", text, 0
    while rest and watch.matched is None:
        size = cuts[n % len(cuts)]
        out, rest, n = out + watch.push(rest[:size]), rest[size:], n + 1
        assert text.startswith(out)
    out += watch.end()
    ends = [text.find(s) + len(s) for s in stops if s in text]
    if not ends:
        assert out == text and watch.matched is None
        return
    # Whichever stop is found, nothing of it or after it has gone out, and no stop was overlooked before it.
    at = text.find(watch.matched)
    assert out == text[: at if trim else at + len(watch.matched)]
    assert at <= min(ends)
