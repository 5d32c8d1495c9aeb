"""Makes torch_logits.npz: the training model's logits (PyTorch, FP32) on the tiny folder of seed 0.

python record_torch.py        (needs the [train] extra; run again only when the format or the math changes)
"""

import tempfile
from pathlib import Path

import numpy as np
import tiny
import torch

from training import export, layers
from training.config import Shape
from training.model import Pocket

SHAPE = Shape(
    vocab=320,
    hidden=64,
    layers=4,
    mla_every=2,
    heads=2,
    head_dim=32,
    rope_dim=16,
    kv_lora=48,
    dense_layers=1,
    dense_inter=160,
    experts=6,
    top_k=2,
    inter=32,
)


def main() -> None:
    layers.OPTIONS.update(kda="recurrent", moe="everywhere", compile=False, dtype=torch.float32)
    model = Pocket(SHAPE).eval()
    with tempfile.TemporaryDirectory() as folder:
        export.restore(model, tiny.write(Path(folder) / "tiny", seed=0))
    ids = np.random.default_rng(0).integers(0, SHAPE.vocab, 10)
    tokens, out = torch.tensor(ids)[None], {"tokens": ids}
    for int8 in (False, True):
        layers.OPTIONS["int8"], name = int8, "int8_" if int8 else ""
        with torch.no_grad():
            h = model.hidden(tokens)
            out[f"{name}main"] = (h @ model.head.t())[0].numpy()
            for s, hs in enumerate(model.drafts(tokens, h, 3), 1):
                out[f"{name}draft{s}"] = (hs @ model.head.t())[0, : len(ids) - s].numpy()
    np.savez_compressed(Path(__file__).with_name("torch_logits.npz"), **out)


if __name__ == "__main__":
    main()
