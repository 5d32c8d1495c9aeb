import pytest

from labkit.errors import BadInput
from labkit.roofline.formats import Format, Size


@pytest.mark.parametrize(
    "name, rows, cols, payload, scale, padding",
    [
        ("fp32", 3, 5, 60, 0, 0),
        ("bf16", 3, 5, 30, 0, 0),
        ("fp16", 3, 5, 30, 0, 0),
        ("fp8-block128", 128, 256, 128 * 256, 2 * 4, 0),
        ("fp8-block128", 129, 257, 129 * 257, 2 * 3 * 4, 0),  # scales of broken blocks count whole
        ("fp8-block2x3", 5, 7, 35, 3 * 3 * 4, 0),
        ("fp8-row", 7, 10, 70, 7 * 4, 0),
        ("fp8-tensor", 7, 10, 70, 4, 0),
        ("int8-row", 7, 10, 70, 28, 0),
        ("mxfp4", 3, 64, 96, 6, 0),
        ("mxfp4", 3, 65, 97.5, 9, 3 * 31 / 2),  # the last group is stored whole
        ("nvfp4", 2, 32, 32, 4, 0),
        ("int4-g128", 2, 256, 256, 2 * 2 * 2, 0),
        ("int4-g32", 2, 40, 40, 2 * 2 * 2, 2 * 24 / 2),
        ("int8-g64", 2, 65, 130, 2 * 2 * 2, 0),
    ],
)
def test_sizes(name, rows, cols, payload, scale, padding):
    size = Format.parse(name).size(rows, cols)
    assert (size.payload, size.scale, size.padding) == (payload, scale, padding)
    assert size.total == payload + scale + padding


def test_names_are_read_kindly():
    assert (
        Format.parse("FP8_Block128")
        == Format.parse("fp8-block128")
        == Format.parse("fp8-block128x128").__class__("fp8-block128", 8, 128, 128, 4)
    )
    assert Format.parse("BF16").name == "bf16"
    form = Format.parse("mxfp4")
    assert Format.parse(form) is form
    assert Format("own", 4).size(2, 3) == Size(3, 0, 0)


@pytest.mark.parametrize("bad", ["fp4", "int4", "int4-g0", "int9-g32", "fp8-block", "fp8-block0", "", None, 8])
def test_unknown_formats_name_what_is_accepted(bad):
    with pytest.raises(BadInput, match="format.*fp32, bf16"):
        Format.parse(bad)
