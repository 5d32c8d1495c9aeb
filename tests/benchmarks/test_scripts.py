"""Arguments, errors and call-backs of the three scripts; none of the packages that they compare with is needed."""

import json
import stat
import sys
import urllib.request

import numpy as np
import pytest

from benchmarks import common, llamacpp, loadtool, matmulnbits, onnx_nbits, pocket_moe
from labkit.errors import BadInput, LabError


def lines(module, argv, capsys):
    """Exit code and what a script wrote to stderr."""
    code = common.run(module.main, module.parser(), module.show, argv)
    return code, capsys.readouterr().err


def test_llama_server_that_is_not_there(tmp_path, capsys):
    code, err = lines(llamacpp, ["--llama-server", str(tmp_path / "none")], capsys)
    assert code == 2 and err.startswith("llama_server:") and err.count("\n") == 1


@pytest.mark.parametrize(
    "argv, field",
    [
        (["--arms", "mtp"], "arms"),
        (["--arms", "fast"], "arms"),
        (["--rounds", "0"], "rounds"),
        (["--output-tokens", "1"], "output_tokens"),
        (["--model", "/no/such/folder"], "config"),
    ],
)
def test_llamacpp_arguments(argv, field, capsys):
    code, err = lines(llamacpp, ["--llama-server", sys.executable, *argv], capsys)
    assert code == 2 and err.startswith(f"{field}:") and err.count("\n") == 1


@pytest.mark.parametrize(
    "argv, field",
    [
        (["--shapes", "12"], "shapes"),
        (["--shapes", "16x0"], "shapes"),
        (["--shapes", "16x48"], "columns"),
        (["--shapes", "8x32"], "rows"),
        (["--rounds", "0"], "rounds"),
        (["--working-set-mb", "0"], "working_set_mb"),
    ],
)
def test_matmulnbits_arguments(argv, field, capsys):
    code, err = lines(matmulnbits, argv, capsys)
    assert code == 2 and err.startswith(f"{field}:") and err.count("\n") == 1


@pytest.mark.parametrize("module, package", [("onnxruntime", "onnxruntime"), ("onnx", "onnx")])
def test_matmulnbits_names_the_missing_package(monkeypatch, module, package, capsys):
    monkeypatch.setitem(sys.modules, "onnx", sys)
    monkeypatch.setitem(sys.modules, "onnxruntime", sys)
    monkeypatch.setitem(sys.modules, module, None)  # None makes the import fail
    code, err = lines(matmulnbits, [], capsys)
    assert code == 1 and f"pip install {package} " in err and err.count("\n") == 1


def test_load_tool_names_the_missing_package(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/no/bin/python")
    code, err = lines(loadtool, [], capsys)
    assert code == 1 and "pip install llama-benchy" in err and err.count("\n") == 1


def test_text_server_serves_the_text():
    with loadtool.text_server("Größe and more") as url:
        assert urllib.request.urlopen(url, timeout=5).read().decode() == "Größe and more"


def script(path, body):
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


ARGS = ["--rounds", "3", "--prompt-tokens", "16", "--output-tokens", "32"]


def run_tool(tmp_path, body):
    args = loadtool.parser().parse_args(ARGS)
    tool = script(tmp_path / "tool", body)
    book = "http://127.0.0.1:2/text"
    return loadtool.run_tool(tool, args, tmp_path, "http://127.0.0.1:1", book, tmp_path, tmp_path / "l")


def test_tool_is_told_everything_and_its_speeds_become_seconds(tmp_path):
    found = run_tool(
        tmp_path,
        """
import json, os, sys
a = sys.argv
assert a[a.index("--base-url") + 1] == "http://127.0.0.1:1/v1" and a[a.index("--runs") + 1] == "3"
assert a[a.index("--tg") + 1] == "32" and "ignore_eos=true" in a and os.environ["HF_HUB_OFFLINE"] == "1"
assert "--once" in a[a.index("--post-run-cmd") + 1]
speeds = {"values": [100.0, 200.0, 400.0]}
json.dump({"benchmarks": [{"tg_req_throughput": speeds}]}, open(a[a.index("--save-result") + 1], "w"))
""",
    )
    assert found == [0.01, 0.005, 0.0025]


def test_tool_failure_is_its_own_words(tmp_path):
    with pytest.raises(LabError, match="llama-benchy: HTTP 400: no such field") as error:
        run_tool(tmp_path, "print('starting'); print('HTTP 400: no such field'); raise SystemExit(1)")
    assert "\n" not in str(error.value)


def test_agreement_is_judged_on_the_paired_ratio():
    figure = common.Paired((1e-3, 2e-3, 1e-3), (1.01e-3, 2.02e-3, 1.01e-3)).as_dict("s/token")
    result = {"server": "it", "output_tokens": 8, "rounds": 3, "tpot": figure, "agree": True, "agree_within": 0.02}
    assert "1.010" in loadtool.show(result) and "NOT" not in loadtool.show(result)
    assert "NOT within 2%" in loadtool.show(result | {"agree": False})


def test_bytes_of_a_matrix():
    assert onnx_nbits.matrix_bytes(256, 384) == 256 * 384 // 2 + 256 * 12 * 4
    assert pocket_moe.matrix_bytes(256, 384) == 256 * 384 // 2 + 256 * 12
    with pytest.raises(BadInput, match="columns"):
        onnx_nbits.matrix_bytes(256, 100)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


@pytest.mark.parametrize("tokens", [1, 4])
def test_generic_walk_computes_the_product(tokens):
    """The loop in C reaches every matrix and does with it what MXFP4 and int8 activations say."""
    side = pocket_moe.PocketMoe(48, 64, tokens, 3, "generic", seed=7)
    x = side.x.reshape(tokens, 2, 32)
    step = np.abs(x).max(-1, keepdims=True) / 127
    rounded = (np.rint(x / step) * step).reshape(tokens, 64)
    got = side.product()
    for copy in range(3):
        codes = side.matrices[copy][: 48 * 32].reshape(48, 2, 16)
        weights = E2M1[np.concatenate([codes & 15, codes >> 4], -1)].reshape(48, 64) * 2.0 ** (pocket_moe.SCALE - 127)
        np.testing.assert_allclose(got[copy], rounded @ weights.T, rtol=1e-4, atol=1e-4)


def test_jit_walk_is_finite_and_differs_by_matrix():
    side = pocket_moe.PocketMoe(32, 64, 2, 2, "jit", seed=7)
    got = side.product()
    assert np.isfinite(got).all() and (got[0] != got[1]).any() and (got != 0).all(-1).any()
    assert side.seconds() > 0


def test_kernel_name_is_checked():
    with pytest.raises(BadInput, match="kernel"):
        pocket_moe.PocketMoe(32, 64, 1, 1, "fastest")


def test_onnx_side_multiplies():
    pytest.importorskip("onnxruntime")
    side = onnx_nbits.NBits(16, 64, 2, 3, seed=1)
    assert side.product().shape == (2, 48) and side.bytes == 3 * onnx_nbits.matrix_bytes(16, 64)
    assert json.dumps(side.seconds())
