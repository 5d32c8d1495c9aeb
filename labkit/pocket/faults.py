"""The faults that can be switched on for teaching (`--fault NAME`), and what each looks like from outside.

bare-head             the draft gets the FP8 head's bytes without its scales, as when only a weight tensor is shared
moe-fallback          the MoE backend that was asked for is silently replaced by the general one
rewrite-draft-tokens  draft tokens other than steps + 1 at topk 1 are rewritten with only a warning
ignore-env            environment variables that should change the engine are not read

A fault shows only as it would on a real engine: never in a field of its own, nor in `launch_command`. What there is:

| fault                | `/server_info`                         | log                           | measured            |
| bare-head            | as if nothing were wrong               | as if nothing were wrong      | a = 1.00, slower    |
| moe-fallback         | moe_runner_backend "jit", as asked     | "experts for generic backend" | the baseline's TPOT |
| rewrite-draft-tokens | speculative_num_draft_tokens steps + 1 | a warning                     | a as for steps + 1  |
| ignore-env           | fp8_lm_head false                      | no line about the FP8 head    | the rung before's   |
"""

from collections.abc import Sequence

from labkit.pocket.options import Options


def warnings(options: Options, asked_draft_tokens: int | None) -> Sequence[str]:
    """Log lines that a real engine would write where a fault changes what was asked."""
    resolved = options.speculative_num_draft_tokens
    if asked_draft_tokens is None or asked_draft_tokens == resolved:
        return ()
    return (f"speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 = {resolved} with topk 1",)
