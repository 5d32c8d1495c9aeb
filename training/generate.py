"""A model folder with random weights, in the final format, and a PyTorch record of its logits.

    python -m training.generate --data DATA --out FOLDER [--seed 0]
    python -m training.generate --record FOLDER            # only the logits, of any folder

FOLDER/torch_logits.npz holds tokens [T], main [T,V] and draft1..draft3 [T,V] (row t of draft s predicts token t+s+1;
rows beyond T-s-1 have read padding and mean nothing), computed in FP32 on the rounded weights, token by token; the
same with int8 activations before routed experts under int8_main, int8_draft1...
"""

import argparse
from pathlib import Path

import numpy as np

from . import export
from .config import Shape


def record(
    folder: Path, text: str = "Question: What is 12 + 7?\nAnswer: 12 + 7 = 19\n#### 19"
) -> dict[str, np.ndarray]:
    """Logits of `text` by the PyTorch model in FP32, with and without int8 activations of routed experts."""
    import torch
    from tokenizers import Tokenizer

    from . import layers
    from .model import Pocket

    before = dict(layers.OPTIONS)
    layers.OPTIONS.update(kda="recurrent", moe="everywhere", compile=False, dtype=torch.float32)
    try:
        model = Pocket(Shape()).eval()
        export.restore(model, folder)
        ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
        tokens, out = torch.tensor([ids]), {"tokens": np.array(ids, np.int64)}
        for int8 in (False, True):
            layers.OPTIONS["int8"], name = int8, "int8_" if int8 else ""
            with torch.no_grad():
                h = model.hidden(tokens)
                out[f"{name}main"] = (h @ model.head.t())[0].numpy()
                for s, hs in enumerate(model.drafts(tokens, h, 3), 1):
                    out[f"{name}draft{s}"] = (hs @ model.head.t())[0].numpy()
        return out
    finally:
        layers.OPTIONS.update(before)


def main(argv: list[str] | None = None) -> None:
    ap = argparse.ArgumentParser(prog="python -m training.generate", description=__doc__.split("\n")[0])
    ap.add_argument("--data", type=Path)
    ap.add_argument("--out", type=Path)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--record", type=Path)
    args = ap.parse_args(argv)
    folder = args.record or args.out
    if not args.record:
        import torch

        from .model import Pocket

        torch.manual_seed(args.seed)
        model = Pocket(Shape())
        with torch.no_grad():  # livelier than the start of training, so that mistakes show in logits
            for name, p in model.named_parameters():
                if name.endswith("norm"):
                    p.add_(0.1 * torch.randn_like(p))
                elif name.endswith(("embedding", "head")):
                    p.mul_(10)
                elif name.endswith("A_log"):
                    p.add_(0.2 * torch.randn_like(p))
                elif p.dim() >= 2 and not name.endswith("conv"):
                    p.mul_(2)
                elif name.endswith("conv"):
                    p.add_(0.2 * torch.randn_like(p))
            for m in model.mixtures():
                m.bias.add_(0.05 * torch.randn_like(m.bias))
        export.save(
            model.s, export.state_of(model), folder, args.data, provenance="generated", extra={"seed": args.seed}
        )
    np.savez_compressed(folder / "torch_logits.npz", **record(folder))


if __name__ == "__main__":
    main()
