"""The prompts of a load, equal for every arm, and the tokenizer that they and the answers are counted with."""

from collections.abc import Mapping
from pathlib import Path

from labkit import workloads
from labkit.params import Params

NOTHING: Mapping[str, object] = {}


def tokenizer_of(params: Params, info: Mapping[str, object] = NOTHING) -> str | Path | None:
    """Where the prompts' tokenizer is: as given, else beside the model that runs; None for the pocket model's own."""
    if params.tokenizer is not None:
        return params.tokenizer
    own = workloads.loads.POCKET_WEIGHTS.resolve()
    for place in (info.get("model_path"), params.engine.model):
        if place and (Path(str(place)) / "tokenizer.json").exists():
            return None if Path(str(place)).resolve() == own else str(place)
    return params.engine.model if params.engine.model != "pocket" and Path(params.engine.model).is_dir() else None


def check(params: Params) -> None:
    """Raises BadInput for prompts of the user's own that cannot be read: before an engine starts for them."""
    if params.workload.startswith("file:") and params.prompt_tokens is None:
        prompts_of(params)


def prompts_of(params: Params, info: Mapping[str, object] = NOTHING) -> list[workloads.Prompt]:
    """The prompts of a load, equal for all arms. Raises BadInput."""
    return workloads.load(
        params.workload,
        count=params.count,
        seed=params.seed,
        tokenizer_path=tokenizer_of(params, info),
        prompt_tokens=params.prompt_tokens,
        output_tokens=params.output_tokens,
        sampling=params.sampling and params.sampling.given(),
        shots=params.shots,
        keep_answers=params.keep_answers,
    )
