"""The model for training on a CPU with PyTorch: formulas against the definition, gradients, one falling loss,
export.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training is an extra; the lab itself needs no PyTorch")

from training import data, export, kernels, layers, moe, trainer  # noqa: E402
from training.config import Shape  # noqa: E402
from training.model import Pocket  # noqa: E402
from training.optim import Optimiser, orthogonalise  # noqa: E402

TINY = Shape(
    vocab=256,
    hidden=64,
    layers=3,
    mla_every=3,
    heads=2,
    head_dim=32,
    rope_dim=16,
    kv_lora=32,
    dense_layers=1,
    dense_inter=64,
    experts=4,
    top_k=2,
    inter=32,
)


@pytest.fixture(autouse=True)
def on_cpu():
    before = dict(layers.OPTIONS)
    layers.OPTIONS.update(kda="chunked", moe="everywhere", compile=False, dtype=torch.float32)
    torch.manual_seed(0)
    yield
    layers.OPTIONS.update(before)


def close(a, b, tolerance):
    assert (a - b).norm() <= tolerance * b.norm()


def test_chunked_kda_is_the_recurrence():
    inputs = [t.detach().float() for t in kernels.example(TINY, 2, 37, "cpu")]
    close(layers.kda_chunked(*inputs, -5.0), layers.kda_recurrent(*inputs, -5.0), 1e-5)


def test_grouped_experts_equal_every_expert_everywhere():
    layer, results = moe.MoE(TINY), []
    x0 = torch.randn(2, 21, 64).bfloat16()
    for kind in ("everywhere", "grouped"):
        layers.OPTIONS["moe"] = kind
        x = x0.clone().requires_grad_()
        layer.zero_grad()
        y = layer(x)
        y.backward(torch.ones_like(y))
        results.append(
            [(y - x).detach().float(), x.grad.float() - 1, layer.w_in.grad.clone(), layer.w_out.grad.clone()]
        )
    for a, b in zip(*results, strict=True):
        close(b, a, 0.04)  # BF16 sums in another order


def test_drafts_see_only_what_an_engine_has():
    """Draft step 2 at position t depends on no token after t+2, and step-1 entries of later positions stay unseen."""
    model = Pocket(TINY).eval()
    tokens = torch.randint(2, 256, (1, 12))
    changed = tokens.clone()
    changed[0, 9:] = (changed[0, 9:] + 1) % 256
    with torch.no_grad():
        a, b = ([h[0] for h in model.drafts(t, model.hidden(t), 3)] for t in (tokens, changed))
    for s in (1, 2, 3):
        assert torch.allclose(a[s - 1][: 9 - s], b[s - 1][: 9 - s], atol=1e-5)
        assert not torch.allclose(a[s - 1][9 - s], b[s - 1][9 - s], atol=1e-4)


def test_muon_orthogonalises():
    s = torch.linalg.svdvals(orthogonalise(torch.randn(3, 16, 40)).float())
    assert s.min() > 0.3 and s.max() < 1.6


def test_loss_falls_and_a_checkpoint_goes_on_exactly(tmp_path):
    rng = np.random.default_rng(0)
    documents = [np.concatenate([rng.permutation(40)[:20] + 10, [0]]) for _ in range(8)] * 20
    raw = np.concatenate(documents).astype(np.uint16)
    raw.tofile(tmp_path / "train_0.bin")

    def fresh():
        torch.manual_seed(3)
        model = Pocket(TINY)
        stream = data.Stream(tmp_path / "train_0.bin", 0, 48, "cpu")
        log = trainer.Log(tmp_path / "log.jsonl", 0.0)
        return trainer.Trainer(model, Optimiser(model, 1e-2), stream, 4, 48, log, trainer.Progress())

    t = fresh()
    losses = [t.step(0.3, 1.0)[0].item() for _ in range(12)]
    assert losses[-1] < 0.8 * losses[0]
    t.save(tmp_path / "c.pt")
    other = fresh()
    other.restore(tmp_path / "c.pt")
    assert other.step(0.3, 1.0)[0].item() == pytest.approx(t.step(0.3, 1.0)[0].item(), rel=1e-5)
    assert other.step(0.3, 1.0)[0].item() == pytest.approx(t.step(0.3, 1.0)[0].item(), rel=1e-4)


def test_rows_begin_at_documents_and_lose_none():
    ends = np.array([9, 29, 34, 60, 99])
    rows = data.row_starts(ends, 31)
    assert rows[0] == 0 and set(rows) <= {0, 10, 30, 35, 61} | {r + 31 for r in rows}
    for first, last in ((0, 9), (10, 29), (30, 34), (35, 60)):
        assert any(r <= first and last <= r + 31 for r in rows)


def test_export_round_trip(tmp_path):
    model, other = Pocket(TINY), Pocket(TINY)
    for f in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / f).write_text("{}")
    index = export.save(TINY, export.state_of(model), tmp_path / "m", tmp_path, provenance="generated")
    assert index["metadata"]["provenance"] == "generated"
    export.restore(other, tmp_path / "m")
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        close(q.detach(), p.detach(), 0.15 if name.endswith(("mlp.w_in", "mlp.w_out")) else 0.04)
    with pytest.raises(ValueError, match="provenance"):
        export.save(TINY, {}, tmp_path / "n", tmp_path, provenance="made up")
