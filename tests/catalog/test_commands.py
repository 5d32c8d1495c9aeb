import json

import pytest
from small import QWEN3_MOE

from labkit.cli import main


def out(capsys, *argv, code=0):
    assert main([*map(str, argv)]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_facts_json(capsys):
    rows = json.loads(out(capsys, "facts", "--json"))["facts"]
    assert len(rows) >= 130 and all(r["ok"] for r in rows)
    assert {"name", "published", "computed", "unit", "tier", "source", "ok"} <= set(rows[0])
    assert {r["tier"] for r in rows} == {"derived"}


def test_facts_table_shows_tier_source_and_reasons(capsys):
    text = out(capsys, "facts")
    assert "◇ derived from reported, spec; NVIDIA Technical Blog" in text
    for reason in ("44% or 69%", "20 or 24 tok/s", "K = 1000 or 1024"):
        assert reason in text
    why = out(capsys, "facts", "--only", "silent fallback, estimate", "--why")
    assert "assumes a = 1" in why and "KV" not in why
    assert "only: got 'nonesuch'" in out(capsys, "facts", "--only", "nonesuch", code=2)


def test_facts_fails_when_a_number_does_not_agree(capsys, monkeypatch):
    from dataclasses import replace

    from labkit.roofline import facts

    rows = facts.facts()
    monkeypatch.setattr(
        facts, "facts", lambda: [replace(rows[0], published=replace(rows[0].published, figure="400e6")), *rows[1:]]
    )
    assert main(["facts", "--json"]) == 1


def test_bytes_json(capsys):
    d = json.loads(
        out(
            capsys,
            "bytes",
            "--model",
            "ling-3.0-flash",
            "--machine",
            "dgx-spark",
            "--context",
            33792,
            "--drafts",
            3,
            "--tpot-ms",
            27.71,
            "--json",
        )
    )
    assert d["per_tensor"]["total_bytes"] == pytest.approx(5.238e9, rel=1e-3)
    assert d["simple"]["total_bytes"] == pytest.approx(3.3564e9, rel=1e-4)
    assert {"name", "payload_bytes", "scale_bytes", "format"} <= set(d["per_tensor"]["groups"][0])
    assert d["kv_bytes"] == 33792 * 8064 and d["state_bytes"] == 146800640
    assert d["round"]["c"] == pytest.approx(2.0887, abs=1e-3)
    u = d["at_tpot"]["per_tensor_utilisation"]
    assert u["tier"] == "derived" and u["value"] == pytest.approx(0.6925, abs=1e-3)
    assert {i["tier"] for i in u["inputs"]} <= {"derived", "spec", "reported"}, "a typed number is not a measurement"


def test_bytes_options(capsys):
    def total(*more):
        return json.loads(out(capsys, "bytes", "--model", "ling-3.0-flash", "--context", 0, "--json", *more))[
            "per_tensor"
        ]["total_bytes"]

    base = total()
    assert total("--head", "fp8") < base < total("--experts", "bf16")
    assert total("--dense", "bf16") > base and total("--positions", "4") > base
    assert total("--kv", "fp8-tensor") == base
    text = out(capsys, "bytes", "--model", "ling-3.0-flash", "--drafts", 2, "--tpot-ms", 30)
    for word in (
        "KDA projections",
        "routed experts",
        "KV read",
        "floor",
        "◇ derived",
        "△ spec",
        "□ reported",
        "c from bytes",
    ):
        assert word in text


def test_bytes_of_a_config_on_disk(capsys, tmp_path):
    config = dict(QWEN3_MOE)
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "config.json"):
        assert json.loads(out(capsys, "bytes", "--model", path, "--json"))["per_tensor"]["total_bytes"] > 0
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["Unheard"]}))
    error = out(capsys, "bytes", "--model", tmp_path, code=2)
    assert "Unheard" in error and "labkit catalog --architectures" in error and error.count("\n") == 1
    del config["num_experts"], config["head_dim"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "missing fields: got 'head_dim, num_experts'" in out(capsys, "bytes", "--model", tmp_path, code=2)


@pytest.mark.parametrize(
    "argv, what",
    [
        (["--model", "nonesuch"], "model: got 'nonesuch'"),
        (["--model", "ling-3.0-flash", "--machine", "x"], "machine"),
        (["--model", "ling-3.0-flash", "--context", "-1"], "context"),
        (["--model", "ling-3.0-flash", "--experts", "fp3"], "format"),
        (["--model", "ling-3.0-flash", "--positions", "0"], "positions"),
        (["--model", "ling-3.0-flash", "--drafts", "0"], "drafts"),
        (["--model", "qwen3-30b-a3b", "--drafts", "1"], "num_nextn_predict_layers"),
        (["--model", "ling-3.0-flash", "--tpot-ms", "0"], "tpot-ms"),
        (["--model", "ling-3.0-flash", "--tpot-ms", "nan"], "tpot-ms"),
    ],
)
def test_bad_input_is_one_line_with_the_field(capsys, argv, what):
    error = out(capsys, "bytes", *argv, code=2)
    assert what in error and error.count("\n") == 1


def test_catalog(capsys):
    d = json.loads(out(capsys, "catalog", "--json"))
    assert {"machines", "models", "results", "recipes", "sources"} == set(d)
    assert d["machines"][0]["bandwidth"]["tier"] == "spec"
    assert d["results"][0]["metrics"]["tpot"] == {
        "value": 27.71,
        "unit": "ms",
        "tier": "reported",
        "source": d["results"][0]["source"],
    }
    text = out(capsys, "catalog", "--sources")
    for word in (
        "dgx-spark",
        "ling-3.0-flash",
        "gsm8k-pairs",
        "--moe-runner-backend humming",
        "△ spec",
        "□ reported",
        "https://github.com/ly01325/Ling3-Flash-DGX-Spark",
    ):
        assert word in text


def test_sensitivities(capsys):
    d = json.loads(out(capsys, "facts", "--sensitivity", "--json"))
    floor = {i["input"]: i["elasticity"] for i in d["sensitivity"]["floor of a step"]}
    assert floor == {"step_bytes": pytest.approx(1), "bandwidth": pytest.approx(-1, abs=1e-3)}
    assert "a -1.00" in out(capsys, "facts", "--sensitivity", "--only", "MTP")
    assert "sensitivity" not in json.loads(out(capsys, "facts", "--json"))


def test_the_example_is_a_valid_catalog(capsys, tmp_path, monkeypatch):
    text = out(capsys, "catalog", "--example")
    (tmp_path / "own.yaml").write_text(text)
    monkeypatch.setenv("LABKIT_CATALOG", str(tmp_path))
    d = json.loads(out(capsys, "bytes", "--model", "my-model", "--machine", "my-desk", "--json"))
    assert d["machine"] == "my-desk" and d["per_tensor"]["quantization"]["experts"] == "int4-g32"


def test_architectures_are_listed(capsys):
    text = out(capsys, "catalog", "--architectures")
    assert "Qwen3NextForCausalLM" in text and "GemmaForCausalLM" in text
    listed = json.loads(out(capsys, "catalog", "--architectures", "--json"))["families"]
    assert "LlamaForCausalLM" in listed["llama"]
