"""What the pocket engine can be asked to do, under SGLang's flag names where they mean the same."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit.errors import BadInput

SHIPPED_WEIGHTS = Path(__file__).parent / "weights"
FAULTS = ("bare-head", "moe-fallback", "rewrite-draft-tokens", "ignore-env")


@dataclass(frozen=True)
class Setting:
    """One option of the engine: how it is asked for, its range and its default. Flags that begin with -- are command
    line; the others are environment variables that SGLang's users know."""

    sent: str
    help: str
    default: object = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: object) -> None:
        """Raises BadInput for a value outside the range."""
        if self.choices and value not in self.choices:
            raise BadInput(name, value, ", ".join(self.choices))
        if self.low is not None:
            whole = isinstance(self.low, int)
            fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not fits or not self.low <= value <= self.high:
                kind = "a whole number" if whole else "a number"
                raise BadInput(name, value, f"{kind} from {self.low} to {self.high}")


# The one list of what the engine can be asked to do: its flags, its checks and the lab's adapter read it.
TABLE = {
    "model_path": Setting("--model-path", "folder with config.json and safetensors", str(SHIPPED_WEIGHTS)),
    "moe_runner_backend": Setting(
        "--moe-runner-backend",
        "expert kernels: generic (run-time shapes) or jit (compiled for these shapes)",
        "generic",
        choices=("generic", "jit"),
    ),
    "dense_dtype": Setting(
        "--dense-dtype",
        "dense weights: fp8 (as on disk), bf16 (expanded at load, same numbers), int8 (rounded again at load, products "
        "W8A8) or auto (fp8 or int8, whichever this processor multiplies faster)",
        "auto",
        choices=("auto", "fp8", "bf16", "int8"),
    ),
    "fp8_lm_head": Setting("SGLANG_ENABLE_FP8_LM_HEAD", "LM head in FP8 (e4m3, a scale per row)", False),
    "enable_fp32_lm_head": Setting("--enable-fp32-lm-head", "logits in FP32 (the BF16 head does that anyway)", False),
    "speculative_algorithm": Setting("--speculative-algorithm", "NEXTN: draft by the MTP layer", choices=("NEXTN",)),
    "speculative_num_steps": Setting("--speculative-num-steps", "draft steps in a round", low=1, high=8),
    "speculative_eagle_topk": Setting(
        "--speculative-eagle-topk", "branches kept at each draft step; 1 is a chain, more is a tree", low=1, high=4
    ),
    "speculative_num_draft_tokens": Setting(
        "--speculative-num-draft-tokens", "tokens that one verify step checks, the root included", low=2, high=16
    ),
    "speculative_token_map": Setting(
        "--speculative-token-map", "draft vocabulary: 0 (whole), a count or a JSON file of ids", "0"
    ),
    "simulate_acc_len": Setting(
        "SGLANG_SIMULATE_ACC_LEN", "mean accept length to force; the text is then not the model's", -1.0, 1.0, 9.0
    ),
    "threads": Setting("--threads", "threads that compute", 1, 1, 2),
    # The model was trained on far less than the longest: long contexts are speed experiments.
    "context_length": Setting("--context-length", "tokens of context that a request may have", 32768, 16, 2**19),
    "kernel_variant": Setting(
        "--kernel-variant",
        "instruction set of the kernels",
        "auto",
        choices=("auto", "avx512bf16", "avx512", "avx2", "neon", "neonbf16", "portable"),
    ),
    "kernel_cache": Setting("--kernel-cache", "folder for compiled kernels (default: the user's cache)"),
    "random_seed": Setting("--random-seed", "seed of sampling", 0, 0, 2**63 - 1),
    "faults": Setting("--fault", "for teaching: break the engine on purpose", choices=FAULTS),
}
FP8_HEAD_VARIABLE = TABLE["fp8_lm_head"].sent
ACCEPT_LENGTH_VARIABLE = TABLE["simulate_acc_len"].sent


def _default(name: str):
    return field(default=TABLE[name].default)


@dataclass(frozen=True)
class Options:
    """One engine's settings, validated on construction (BadInput names the field).

    speculative_*: all three numbers or none; topk 1 needs speculative_num_draft_tokens = steps + 1.
    simulate_acc_len: -1 off, else the mean accept length to force (1 .. steps + 1); the text is then not the model's.
    speculative_token_map: what a draft may propose: "0" (the whole vocabulary), or, besides the request's own tokens, a
    count (the shipped model's most frequent ones) or the path of a JSON list of ids. A draft pass then reads fewer rows
    of the LM head, an optimisation of its own: the text stays the model's, the accept length may fall.
    kernel_cache: folder for compiled kernels; None = $XDG_CACHE_HOME/labkit/kernels.
    """

    model_path: str = _default("model_path")
    moe_runner_backend: str = _default("moe_runner_backend")
    fp8_lm_head: bool = False
    enable_fp32_lm_head: bool = False
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    simulate_acc_len: float = _default("simulate_acc_len")
    speculative_token_map: str = _default("speculative_token_map")
    threads: int = _default("threads")
    dense_dtype: str = _default("dense_dtype")
    context_length: int = _default("context_length")
    kernel_variant: str = _default("kernel_variant")
    kernel_cache: str | None = None
    random_seed: int = _default("random_seed")
    faults: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self):
        for name in ("moe_runner_backend", "dense_dtype", "kernel_variant", "threads", "context_length", "random_seed"):
            TABLE[name].check(name, getattr(self, name))
        for name in sorted(self.faults):
            TABLE["faults"].check("faults", name)
        if self.fp8_lm_head and self.enable_fp32_lm_head:
            raise BadInput(
                "enable_fp32_lm_head",
                True,
                f"one of enable_fp32_lm_head and {FP8_HEAD_VARIABLE}=1, because a "
                "head rounded to e4m3 cannot give the FP32 head's logits",
            )
        self._check_speculation()

    def _check_speculation(self):
        steps, topk, drafts = numbers = (
            self.speculative_num_steps,
            self.speculative_eagle_topk,
            self.speculative_num_draft_tokens,
        )
        if self.speculative_algorithm is None:
            if any(n is not None for n in numbers):
                raise BadInput("speculative_algorithm", None, "NEXTN when any of the speculative numbers is given")
            if self.simulate_acc_len != -1:
                raise BadInput("simulate_acc_len", self.simulate_acc_len, "-1 (off) without speculation")
            return
        TABLE["speculative_algorithm"].check("speculative_algorithm", self.speculative_algorithm)
        if all(n is None for n in numbers):  # the published setting
            for name, value in (("num_steps", 3), ("eagle_topk", 1), ("num_draft_tokens", 4)):
                object.__setattr__(self, f"speculative_{name}", value)
            steps, topk, drafts = 3, 1, 4
        if None in (steps, topk, drafts):
            raise BadInput(
                "speculative_num_steps, speculative_eagle_topk, speculative_num_draft_tokens",
                (steps, topk, drafts),
                "all three or none",
            )
        for name in ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"):
            TABLE[name].check(name, getattr(self, name))
        if topk == 1 and drafts != steps + 1:
            if "rewrite-draft-tokens" not in self.faults:
                raise BadInput(
                    "speculative_num_draft_tokens",
                    drafts,
                    f"{steps + 1} (with topk 1 the drafts form a chain: steps + 1)",
                )
            object.__setattr__(self, "speculative_num_draft_tokens", steps + 1)
        largest = 1 + topk + (steps - 1) * topk * topk
        if topk > 1 and drafts > largest:
            raise BadInput(
                "speculative_num_draft_tokens",
                drafts,
                f"at most {largest}, all that {steps} steps of topk {topk} propose, the root included",
            )
        acc = self.simulate_acc_len
        if acc != -1 and not 1 <= acc <= steps + 1:
            raise BadInput("simulate_acc_len", acc, f"-1 (off) or a length from 1 to {steps + 1}")

    @property
    def speculative(self) -> bool:
        return self.speculative_algorithm is not None

    @property
    def runs_jit(self) -> bool:
        """Whether the shape-specialised MoE kernels really run (the fault moe-fallback runs generic ones)."""
        return self.moe_runner_backend == "jit" and "moe-fallback" not in self.faults

    @classmethod
    def from_flags(cls, argv: Sequence[str], env: Mapping[str, str]) -> "Options":
        """Options from a command line of engine flags only, and from the environment."""
        parser = argparse.ArgumentParser(prog="pocket", exit_on_error=False)
        add_flags(parser)
        return from_args(parser.parse_args(list(argv)), env)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the engine's flags to `parser`; `from_args` reads them back."""
    for name, s in TABLE.items():
        if not s.sent.startswith("--"):
            continue
        if name == "faults":
            more = {"action": "append", "default": []}
        elif s.default is False:
            more = {"action": "store_true"}
        else:
            more = {"type": int if isinstance(s.low, int) else str, "default": s.default}
        parser.add_argument(s.sent, dest=name, help=_help(name, s), **more)


def _help(name: str, s: Setting) -> str:
    """The option's sentence with its range and default."""
    reach = f"{s.low} to {s.high}" if s.low is not None and name != "random_seed" else ", ".join(s.choices)
    default = s.default if s.default not in (None, False) and name != "model_path" else None
    ends = [part for part in (reach, f"default {default}" if default is not None else "") if part]
    return s.help + (f" ({'; '.join(ends)})" if ends else "")


def from_args(args: argparse.Namespace, env: Mapping[str, str]) -> Options:
    """Options from parsed flags plus the two environment variables that SGLang users know."""
    given = {name: getattr(args, name) for name, s in TABLE.items() if s.sent.startswith("--")}
    given["faults"] = faults = frozenset(args.faults)
    if "ignore-env" in faults:
        env = {}
    given["fp8_lm_head"] = _switch(FP8_HEAD_VARIABLE, env.get(FP8_HEAD_VARIABLE, "0"))
    given["simulate_acc_len"] = _number(ACCEPT_LENGTH_VARIABLE, env.get(ACCEPT_LENGTH_VARIABLE, "-1"))
    return Options(**given)


def _switch(name: str, text: str) -> bool:
    values = {"0": False, "false": False, "": False, "1": True, "true": True}
    if text.lower() not in values:
        raise BadInput(name, text, "0, 1, true or false")
    return values[text.lower()]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(name, text, "a number, -1 for off") from None
