import struct

import gguf_file
import pytest

from labkit.errors import BadInput
from labkit.roofline.formats import Format
from labkit.roofline.gguf import TYPES, Length, read_gguf

META = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.head_count_kv": [2, 0],
    "tokenizer.ggml.tokens": ["a", "bc", ""],
    "general.quantized_by_me": True,
}
TENSORS = {
    "token_embd.weight": ("Q6_K", (256, 50)),
    "blk.0.ffn_gate_exps.weight": ("MXFP4", (64, 32, 4)),
    "blk.0.attn_norm.weight": ("F32", (256,)),
}


def test_a_header_as_it_was_written(tmp_path):
    got = read_gguf(gguf_file.write(tmp_path / "m.gguf", META, TENSORS))
    assert got.architecture == "llama" and got.version == 3
    assert got.metadata["llama.attention.head_count_kv"] == [2, 0]
    assert got.metadata["llama.rope.freq_base"] == 10000 and got.metadata["general.quantized_by_me"] is True
    assert got.metadata["tokenizer.ggml.tokens"] == Length(3)
    assert [(t.name, t.type, t.shape) for t in got.tensors] == [(n, k, s) for n, (k, s) in TENSORS.items()]
    assert [t.bytes for t in got.tensors] == [50 * 210, 64 * 32 * 4 // 32 * 17, 1024]
    assert got.tensors[1].parameters == 8192 and got.tensor_bytes == 10500 + 4352 + 1024


def test_a_long_numeric_array_is_walked_over(tmp_path):
    path = gguf_file.write(tmp_path / "m.gguf", META | {"tokenizer.ggml.token_type": [1] * 70000}, TENSORS)
    assert read_gguf(path).metadata["tokenizer.ggml.token_type"] == Length(70000)
    assert len(read_gguf(path).tensors) == 3


def test_parts_are_read_together_and_a_missing_one_is_named(tmp_path):
    for i, name in enumerate(TENSORS, 1):
        gguf_file.write(tmp_path / f"m-{i:05d}-of-00003.gguf", META, {name: TENSORS[name]})
    assert {t.name for t in read_gguf(tmp_path / "m-00001-of-00003.gguf").tensors} == set(TENSORS)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(BadInput, match="missing: m-00002-of-00003.gguf"):
        read_gguf(tmp_path / "m-00001-of-00003.gguf")


@pytest.mark.parametrize("cut", [0, 3, 4, 20, 60, 200])
def test_a_header_that_breaks_off(tmp_path, cut):
    whole = gguf_file.write(tmp_path / "m.gguf", META, TENSORS).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:cut])
    with pytest.raises(BadInput, match="GGUF"):
        read_gguf(tmp_path / "cut.gguf")


def test_weights_that_break_off(tmp_path):
    path = gguf_file.write(tmp_path / "m.gguf", META, TENSORS)
    path.write_bytes(path.read_bytes()[:-33])
    with pytest.raises(BadInput, match="bytes that its header promises"):
        read_gguf(path)


def test_what_is_not_gguf(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\3\4" * 20)
    with pytest.raises(BadInput, match="does not begin with GGUF"):
        read_gguf(tmp_path / "x.gguf")
    (tmp_path / "y.gguf").write_bytes(struct.pack("<4sIQQ", b"GGUF", 1, 0, 0))
    with pytest.raises(BadInput, match="version.*got 1"):
        read_gguf(tmp_path / "y.gguf")
    with pytest.raises(BadInput, match="readable GGUF"):
        read_gguf(tmp_path / "absent.gguf")
    with pytest.raises(BadInput, match="whole blocks of 256"):
        read_gguf(gguf_file.write(tmp_path / "z.gguf", META, {"a": ("Q4_K", (250, 2))}))


@pytest.mark.parametrize("name", [n for n, *_ in TYPES.values()])
def test_every_type_is_a_format_of_the_same_size(name):
    _, block, size, _ = next(v for v in TYPES.values() if v[0] == name)
    assert Format.parse(name).size(3, 2 * block).total == 3 * 2 * size


def test_block_sizes_are_those_of_the_gguf_package():
    theirs = pytest.importorskip("gguf").constants
    for kind, (block, size) in theirs.GGML_QUANT_SIZES.items():
        if kind.name not in ("Q8_1",):  # never stored; the package has it larger than ggml's C struct
            assert TYPES[kind.value][:3] == (kind.name, block, size)


def test_every_type_of_the_server_that_pip_brings_is_known():
    """Each release may bring a new one: a file that has it would be refused."""
    theirs = pytest.importorskip("xllamacpp").ggml_type.__members__
    known = {number: name for number, (name, *_) in TYPES.items()}
    named = {int(t.value): n.removeprefix("GGML_TYPE_") for n, t in theirs.items() if not n.endswith("COUNT")}
    assert {n: named[n] for n in named if n in known} == {n: known[n] for n in named if n in known}
    assert not named.keys() - known.keys(), [named[n] for n in named.keys() - known.keys()]


def test_the_reader_agrees_with_the_gguf_package(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = gguf_file.write(tmp_path / "m.gguf", META, TENSORS)
    theirs = gguf.GGUFReader(path)
    mine = {t.name: t for t in read_gguf(path).tensors}
    assert {t.name: (t.n_bytes, t.data_offset) for t in theirs.tensors} == {
        n: (t.bytes, t.offset) for n, t in mine.items()
    }
