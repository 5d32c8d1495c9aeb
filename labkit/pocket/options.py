"""What the pocket engine can be asked to do, under SGLang's flag names where they mean the same."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit.errors import BadInput

SHIPPED_WEIGHTS = Path(__file__).parent / "weights"
MOE_BACKENDS = ("generic", "jit")
VARIANTS = ("auto", "avx512", "avx2", "neon", "portable")
DENSE_DTYPES = ("fp8", "bf16")
FAULTS = ("bare-head", "moe-fallback", "rewrite-draft-tokens", "ignore-env")
FP8_HEAD_VARIABLE = "SGLANG_ENABLE_FP8_LM_HEAD"
ACCEPT_LENGTH_VARIABLE = "SGLANG_SIMULATE_ACC_LEN"
MAX_DRAFT_TOKENS = 16  # tokens one verify pass takes, the root included
MAX_STEPS = 8
MAX_TOPK = 4
MAX_CONTEXT = 2**19  # the model was trained on far less: long contexts are speed experiments


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

    model_path: str = str(SHIPPED_WEIGHTS)
    moe_runner_backend: str = "generic"
    fp8_lm_head: bool = False
    enable_fp32_lm_head: bool = False
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_num_draft_tokens: int | None = None
    simulate_acc_len: float = -1.0
    speculative_token_map: str = "0"
    threads: int = 1
    dense_dtype: str = "fp8"
    context_length: int = 32768
    kernel_variant: str = "auto"
    kernel_cache: str | None = None
    random_seed: int = 0
    faults: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self):
        _one_of("moe_runner_backend", self.moe_runner_backend, MOE_BACKENDS)
        _one_of("dense_dtype", self.dense_dtype, DENSE_DTYPES)
        _one_of("kernel_variant", self.kernel_variant, VARIANTS)
        _whole("threads", self.threads, 1, 2)
        _whole("context_length", self.context_length, 16, MAX_CONTEXT)
        _whole("random_seed", self.random_seed, 0, 2**63 - 1)
        for name in sorted(self.faults):
            _one_of("faults", name, FAULTS)
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
        _one_of("speculative_algorithm", self.speculative_algorithm, ("NEXTN",))
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
        _whole("speculative_num_steps", steps, 1, MAX_STEPS)
        _whole("speculative_eagle_topk", topk, 1, MAX_TOPK)
        _whole("speculative_num_draft_tokens", drafts, 2, MAX_DRAFT_TOKENS)
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
    flag = parser.add_argument
    flag("--model-path", default=str(SHIPPED_WEIGHTS), help="folder with config.json and safetensors")
    flag("--moe-runner-backend", default="generic", help="generic (run-time shapes) or jit (compiled for these shapes)")
    flag("--enable-fp32-lm-head", action="store_true", help="logits in FP32 (the BF16 head does that anyway)")
    flag("--speculative-algorithm", help="NEXTN")
    flag("--speculative-num-steps", type=int)
    flag("--speculative-eagle-topk", type=int)
    flag("--speculative-num-draft-tokens", type=int)
    flag("--speculative-token-map", default="0", help="draft vocabulary: 0 (whole), a count or a JSON file of ids")
    flag("--threads", type=int, default=1, help="1 or 2")
    flag("--dense-dtype", default="fp8", help="fp8 (as on disk) or bf16 (expanded at load, same numbers)")
    flag("--context-length", type=int, default=32768)
    flag("--kernel-variant", default="auto", help="auto, avx512, avx2, neon or portable")
    flag("--kernel-cache", help="folder for compiled kernels (default: the user's cache)")
    flag("--random-seed", type=int, default=0)
    flag("--fault", action="append", default=[], metavar="NAME", help="teach: " + ", ".join(FAULTS))


def from_args(args: argparse.Namespace, env: Mapping[str, str]) -> Options:
    """Options from parsed flags plus the two environment variables that SGLang users know."""
    faults = frozenset(args.fault)
    if "ignore-env" in faults:
        env = {}
    return Options(
        model_path=args.model_path,
        moe_runner_backend=args.moe_runner_backend,
        fp8_lm_head=_switch(FP8_HEAD_VARIABLE, env.get(FP8_HEAD_VARIABLE, "0")),
        enable_fp32_lm_head=args.enable_fp32_lm_head,
        speculative_algorithm=args.speculative_algorithm,
        speculative_num_steps=args.speculative_num_steps,
        speculative_eagle_topk=args.speculative_eagle_topk,
        speculative_num_draft_tokens=args.speculative_num_draft_tokens,
        simulate_acc_len=_number(ACCEPT_LENGTH_VARIABLE, env.get(ACCEPT_LENGTH_VARIABLE, "-1")),
        speculative_token_map=args.speculative_token_map,
        threads=args.threads,
        dense_dtype=args.dense_dtype,
        context_length=args.context_length,
        kernel_variant=args.kernel_variant,
        kernel_cache=args.kernel_cache,
        random_seed=args.random_seed,
        faults=faults,
    )


def _one_of(field_name: str, value: object, accepted: Sequence[str]) -> None:
    if value not in accepted:
        raise BadInput(field_name, value, ", ".join(accepted))


def _whole(field_name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadInput(field_name, value, f"a whole number from {low} to {high}")


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
