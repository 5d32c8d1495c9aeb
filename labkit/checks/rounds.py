"""What a drafting round waits for beside its kernels: the host, where attention needs values from it, and launches,
where a pass of the round has no CUDA graph. Nothing fails and drafts are accepted; only c is higher than it need be.

Seen on SGLang 0.5.23 and one H200 (outputs/examples/h200): FlashInfer's MLA takes sequence lengths from the host
(`needs_cpu_seq_lens`), so no round is queued before the last one ended, and its draft-extend pass is not captured.
"""

import re
from collections.abc import Mapping

from labkit.checks.check import FAIL, PASS, UNKNOWN, Check
from labkit.checks.drafting import algorithm
from labkit.checks.observed import Observed
from labkit.engines.config import EngineConfig
from labkit.engines.identify import POCKET

HOST, EXTEND = "rounds wait for the host", "draft-extend CUDA graph"
GLUE = "SGLANG_ENABLE_METADATA_GLUE_GRAPH"
_WAITS, _DOES_NOT = ("flashinfer",), ("fa3", "flashmla", "triton")  # each measured with MTP on an MLA model
_EXTENDS = ("EAGLE", "EAGLE3", "NEXTN")  # drafting that runs the draft model over what was accepted
_MLA = re.compile(r"type=(BailingMoe\w*V3|BailingMoeLinear|Deepseek(?:V2|V3)|KimiLinear|LongcatFlash)\w*")


def checks(seen: Observed) -> list[Check]:
    """Checks of a server that drafts; none where neither its description nor its log tells anything about them."""
    if seen.identity.engine == POCKET or not algorithm(seen):
        return []
    return _host(seen) + _extend(seen)


def _host(seen: Observed) -> list[Check]:
    used = backends(seen.info)
    if not used:
        return []
    where, shown = "/server_info attention_backend", ", ".join(used)
    if not any(name in _WAITS for name in used):
        verdict = PASS if all(name in _DOES_NOT for name in used) else UNKNOWN
        return [Check(HOST, "no", shown, where, verdict, "" if verdict == PASS else "unknown for this backend")]
    mla = seen.proof is not None and _MLA.search(seen.log)
    note = "its MLA reads sequence lengths on the host in each round; compare with --attention-backend fa3 or triton"
    if not mla:
        note = "true for MLA models, and no log says that this is one: " + note
    return [Check(HOST, "no", shown, where + (", log" if mla else ""), FAIL if mla else UNKNOWN, note)]


def _extend(seen: Observed) -> list[Check]:
    if seen.proof is None or str(algorithm(seen)).upper() not in _EXTENDS or not seen.proof.captured("target verify"):
        return []
    if seen.proof.captured("draft extend"):
        return [Check(EXTEND, "captured", "Capture draft extend CUDA graph end", "log", PASS)]
    note = "its kernels are launched one by one in each round; this attention backend has no graph for it"
    return [Check(EXTEND, "captured", "target verify captured, draft extend not", "log", FAIL, note)]


def frozen_plan(seen: Observed, config: EngineConfig | None = None) -> str | None:
    """What would not even be slow but wrong: a captured plan that takes its values from the host."""
    given = {**(dict(config.env) if config else {}), **seen.env}
    if str(given.get(GLUE, "")).lower() not in ("1", "true", "yes", "on"):
        return None
    waits = [name for name in backends(seen.info) if name in _WAITS]
    why = "its plan takes values from the host, which a graph would freeze"
    return f"{GLUE} with {waits[0]} attention: {why}" if waits else None


def backends(info: Mapping) -> list[str]:
    """Attention backends of decoding: the target's, then the draft's where it is another."""
    target = info.get("decode_attention_backend") or info.get("attention_backend")
    found = [target, info.get("speculative_draft_attention_backend")]
    return list(dict.fromkeys(str(name) for name in found if name))
