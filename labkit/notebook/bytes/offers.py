"""The settings of notebook 01 in the ranges of one model and one machine."""

from labkit import catalog
from labkit.evidence import Evidence
from labkit.notebook.settings import Setting
from labkit.roofline.tensors import Shape

AS_RELEASED = "as released"
PASTED = "pasted config"
FORMATS = (AS_RELEASED, "bf16", "fp8-row", "mxfp4", "int4-g32", "int4-g128")
HEADS = (AS_RELEASED, "bf16", "fp8", "fp32")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WINDOWS = 16
POSITIONS = 5  # draft positions of the simulator
LONGEST = 131072  # tokens, where a config names no longest context
WIDEST = 20_000  # GB/s: the end of the bandwidth slider where the machine's own is not known yet


def settings(
    shape: Shape, longest: int, bandwidth: Evidence | None, given: str, *, pasted: bool, typed: float
) -> tuple[Setting, ...]:
    """bandwidth: the machine's own, None where it would first have to be measured; given: the model of the parameters
    cell, which may be a path; typed: the bandwidth as set, GB/s, which the slider must hold."""
    models = dict.fromkeys([*catalog.catalog().models, given, *([PASTED] if pasted else [])])
    widest = max(WIDEST if bandwidth is None else 2 * bandwidth.to("GB/s").value, _number(typed))
    return (
        Setting("model", "model", "choice", "The model whose bytes are counted.", choices=tuple(models)),
        Setting(
            "machine",
            "machine",
            "choice",
            "The machine whose memory and bandwidth are used.",
            choices=(*catalog.catalog().machines, "this"),
        ),
        Setting(
            "bandwidth",
            "GB/s (0: its own)",
            "float",
            "Memory bandwidth to calculate with; 0 takes the machine's own.",
            0,
            min(widest, 1e6),
            max(1.0, round(widest / 200)),
        ),
        Setting("context", "context", "int", "Tokens whose KV is read per step.", 0, longest, max(1, longest // 256)),
        Setting("batch", "batch", "int", "Sequences held and decoded together.", 1, BATCHES[-1]),
        Setting("experts", "expert format", "choice", "Number format of the routed experts.", choices=FORMATS),
        Setting("head", "head format", "choice", "Number format of the LM head.", choices=HEADS),
        Setting(
            "top_k",
            "top-k",
            "int",
            "Experts per token and layer.",
            min(1, shape.experts),
            max(1, min(shape.experts, 4 * shape.top_k)),
        ),
        Setting("window", "window", "int", "Positions computed together in one step.", 1, WINDOWS),
        *(
            Setting(
                f"accept_{i}",
                f"draft {i} accepted",
                "float",
                f"Share of rounds in which draft {i} is accepted" + (", given all before it." if i > 1 else "."),
                0,
                1,
                0.01,
            )
            for i in range(1, POSITIONS + 1)
        ),
        Setting(
            "verify_cost", "cost of a position", "float", "Plain steps that a verified position adds.", 0, 1, 0.001
        ),
        Setting("draft_cost", "cost of a draft", "float", "Plain steps that a draft pass takes.", 0, 1, 0.001),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0
