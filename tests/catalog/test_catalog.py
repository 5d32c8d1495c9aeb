import textwrap

import pytest
import yaml
from small import QWEN3_MOE

from labkit import catalog
from labkit.catalog import DATA, load_config, project_folder
from labkit.catalog.config import ModelConfig, read_config
from labkit.errors import BadInput
from labkit.evidence import Tier
from labkit.roofline.account import per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.quantization import quantization_of


def test_everything_has_a_source_and_a_date():
    known = catalog.catalog()
    assert all(s.title and len(s.date) == 10 for s in known.sources.values())
    entries = [*known.machines.values(), *known.models.values(), *known.results.values()]
    titles = {str(s) for s in known.sources.values()}
    assert len(entries) > 25 and all(e.source in titles for e in entries)
    for r in known.recipes:
        assert r["source"] in known.sources and (r.get("flags") or r.get("proof"))


def test_machines_are_specified_and_results_reported():
    known = catalog.catalog()
    for m in known.machines.values():
        assert m.bandwidth.tier is Tier.SPEC and m.bandwidth.to("GB/s").value > 100
        assert all(p.flops.tier is Tier.SPEC for p in m.peaks)
        assert m.sustained is None or m.sustained.tier is Tier.REPORTED
    for r in known.results.values():
        assert r.metrics and all(e.tier is Tier.REPORTED for e in r.metrics.values())
        assert r.model in known.models and r.machine in known.machines
        assert r.rung in (None, "baseline", "kernels", "fp8-head", "mtp")


def test_every_model_has_an_account():
    for m in catalog.catalog().models.values():
        assert per_tensor(m.config, context=1000).total_bytes > 0
        assert quantization_of(m.config).as_dict()
        assert all(e.tier is Tier.REPORTED for e in m.published.values())


def test_figures_in_the_units_as_published():
    spark = catalog.machine("dgx-spark")
    assert (spark.bandwidth.value, spark.bandwidth.unit, spark.memory.quantity("g")) == (273, "GB/s", "128 GB")
    assert spark.peaks[0].sparse and spark.peaks[0].precision == "FP4" and spark.peaks[0].flops.si == 1e15
    assert [
        catalog.result(f"synthetic-{r}").metrics["tpot"].quantity("g")
        for r in ("baseline", "kernels", "fp8-head", "mtp")
    ] == ["27.71 ms", "25.35 ms", "22.76 ms", "9.72 ms"]
    pairs = catalog.result("gsm8k-pairs").metrics
    assert (
        sum(pairs[p].value for p in ("both_right", "only_baseline_right", "only_optimised_right", "both_wrong")) == 1319
    )
    counts = catalog.result("gsm8k-all-counts").metrics
    assert pairs["both_right"].value + pairs["only_optimised_right"].value == counts["correct"].value
    assert catalog.machine("ryzen-ai-max-395").sustained.low == 212


def test_unknown_ids_list_the_known():
    for get, some in ((catalog.machine, "dgx-spark"), (catalog.model, "ling-3.0-flash"), (catalog.result, "fallback")):
        with pytest.raises(BadInput, match=some):
            get("nonesuch")
    with pytest.raises(BadInput, match="this"):
        catalog.machine("nonesuch")


OWN = """
machines:
  - id: desk
    name: my desk
    bandwidth: {value: 80, unit: GB/s}
    source: the board's manual
models:
  - id: mine
    name: my model
    source: my own training
    config_path: my/config.json
"""
CONFIG = QWEN3_MOE


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "catalog" / "my").mkdir(parents=True)
    (tmp_path / "params").mkdir()
    (tmp_path / "notebooks").mkdir()
    import json

    (tmp_path / "catalog" / "my" / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABKIT_CATALOG", raising=False)

    def write(text: str, name: str = "own.yaml"):
        (tmp_path / "catalog" / name).write_text(textwrap.dedent(text))

    return write


def test_users_add_their_own(project, tmp_path, monkeypatch):
    project(OWN)
    assert catalog.machine("desk").bandwidth.value == 80
    assert catalog.machine("desk").source == "the board's manual"
    assert shape_of(load_config("mine")).vocab == 100
    assert "dgx-spark" in catalog.catalog().machines
    monkeypatch.chdir(tmp_path / "notebooks")
    assert project_folder() == tmp_path and catalog.machine("desk").name == "my desk"
    project(OWN.replace("80", "90"))
    import os

    os.utime(tmp_path / "catalog" / "own.yaml", (1, 1))
    assert catalog.machine("desk").bandwidth.value == 90
    monkeypatch.setenv("LABKIT_CATALOG", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="LABKIT_CATALOG"):
        catalog.catalog()
    monkeypatch.setenv("LABKIT_CATALOG", str(tmp_path / "catalog"))
    assert catalog.machine("desk").bandwidth.value == 90


@pytest.mark.parametrize(
    "text, what",
    [
        ("[1, 2]", "own.yaml.*mapping"),
        ("machines: [", "own.yaml.*YAML"),
        ("machine: []", "unknown sections.*machine"),
        ("results: []", "unknown sections.*results"),
        ("machines: {}\nmodels: 3", "models.*list"),
        ("machines: [desk]", r"machines\[0\].*mapping"),
        ("machines: [{name: x}]", r"machines\[0\].id"),
        (
            "machines: [{id: a, name: b, source: s, bandwidth: {value: 1, unit: GB/s}, speed: 3}]",
            r"machines\[0\].speed",
        ),
        ("machines: [{id: a, name: b, source: s}]", r"machines\[0\].bandwidth"),
        ("machines: [{id: a, name: b, bandwidth: {value: 1, unit: GB/s}}]", r"machines\[0\].source"),
        ("machines: [{id: a, source: s, bandwidth: {value: 1, unit: GB/s}}]", r"machines\[0\].name"),
        ("machines: [{id: a, name: b, source: s, bandwidth: 80}]", "bandwidth.*mapping"),
        (
            "machines: [{id: a, name: b, source: s, bandwidth: {value: fast, unit: GB/s}}]",
            "bandwidth.value.*fast",
        ),
        ("machines: [{id: a, name: b, source: s, bandwidth: {value: 80}}]", "bandwidth.unit.*GB/s"),
        ("machines: [{id: a, name: b, source: s, bandwidth: {value: 80, unit: GB}}]", "unit.*dimension"),
        ("machines: [{id: a, name: b, source: s, bandwidth: {value: -80, unit: GB/s}}]", "bandwidth.*positive"),
        ("machines: [{id: a, name: b, source: s, bandwidth: {value: 80, unit: GB/s, low: 90, high: 95}}]", "interval"),
        (
            "machines: [{id: a, name: b, source: s, bandwidth: {value: 80, unit: GB/s},"
            " peaks: [{value: 1, unit: TFLOP/s}]}]",
            "peaks.*precision",
        ),
        ("machines: [{id: dgx-spark, name: b, source: s, bandwidth: {value: 80, unit: GB/s}}]", "id.*not taken"),
        ("machines: [{id: this, name: b, source: s, bandwidth: {value: 80, unit: GB/s}}]", "id.*not taken"),
        ("models: [{id: m, name: n, source: s}]", "either config: .* or config_path"),
        ("models: [{id: m, name: n, source: s, config: {}, config_path: x}]", "either config"),
        ("models: [{id: m, name: n, source: s, config_path: none.json}]", "none.json"),
        ("models: [{id: m, name: n, source: s, config: 3}]", r"models\[0\].config"),
        ("models: [{id: m, name: n, source: s, config: {}, formats: x}]", "formats"),
        ("models: [{id: m, name: n, source: s, config: {}, published: {speed: {value: 1}}}]", "published.*speed"),
        ("sources: {x: {title: y}}", "date"),
        ("sources: {x: {title: y, date: soon}}", "date"),
        ("sources: {vendor-specs: {title: y, date: 2026-01-01}}", "not taken"),
    ],
)
def test_a_bad_file_is_named_with_entry_and_field(project, text, what):
    project(text)
    with pytest.raises(BadInput, match=what):
        catalog.catalog()


def test_configs_from_paths(project, tmp_path):
    folder = tmp_path / "catalog" / "my"
    assert load_config(folder).fields == load_config(folder / "config.json").fields == CONFIG
    assert load_config(folder).name == "my" and load_config(folder).source.endswith("config.json")
    with pytest.raises(BadInput, match="existing config.json.*ling-3.0-flash"):
        load_config("no/such/model")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="config.json"):
        load_config(tmp_path / "empty")
    for text in ("[]", "{", "\xff"):
        (tmp_path / "bad.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(BadInput, match="bad.json"):
            load_config(tmp_path / "bad.json")


def test_a_multimodal_config_is_read_one_level_down(tmp_path):
    import json

    outer = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "text_config": {k: v for k, v in CONFIG.items() if k != "architectures"},
    }
    (tmp_path / "config.json").write_text(json.dumps(outer))
    assert shape_of(read_config(tmp_path)).vocab == 100


def test_plain_dicts_are_configs():
    assert ModelConfig.of(CONFIG).architecture == "Qwen3MoeForCausalLM"
    with pytest.raises(BadInput):
        ModelConfig.of("x")


def test_ids_of_the_files_match_the_loaded():
    files = {n: yaml.safe_load((DATA / f"{n}.yaml").read_text()) for n in ("machines", "models", "results")}
    known = catalog.catalog()
    assert set(known.machines) == {m["id"] for m in files["machines"]["machines"]}
    assert set(known.models) | {"pocket"} == {m["id"] for m in files["models"]["models"]}
    assert set(known.results) == {r["id"] for r in files["results"]["results"]}


@pytest.mark.parametrize(
    "change, what",
    [
        ({"figure": "about 3"}, "figure"),
        ({"figure": 3.5}, "figure"),
        ({"unit": "parsec"}, "unit"),
        ({"within": 0}, "within"),
        ({"within": True}, "within"),
        ({"reason": "because"}, "reason.*known"),
        ({"extra": 1}, "extra"),
        ({"name": ""}, "name"),
    ],
)
def test_published_rows_are_checked(change, what):
    from labkit.catalog.read import published_of

    good = {"name": "x", "figure": "3.355", "unit": "GB", "source": "blog", "reason": "known"}
    row = published_of("published[0]", good, {}, {"known": "both\n  are"})
    assert (row.value, row.within, row.reason, row.source) == (3.355, 0.0005, "both are", "blog")
    with pytest.raises(BadInput, match=what):
        published_of("published[0]", good | change, {}, {"known": "both are"})
