"""What an engine's log proves: kernels that were prepared, the head, what the draft shares, graphs, accepted drafts.

Lines of SGLang 0.5.x, of labkit's plugin, of the vendor's fork and of the pocket engine; a line that is not there
proves nothing by itself.
"""

import re
from dataclasses import dataclass

HEAD_PROOF = re.compile(r"labkit plugin: FP8 lm_head on|Online FP8 quantization (?:enabled for|of) lm_head")
MODULE_PROOF = re.compile(r"shares the target's lm_head module")
TENSOR_ONLY = re.compile(r"keeps the bare weight tensor")
PLUGIN = "labkit plugin:"
_PREPARED = re.compile(r"Preparing (?:\S+ )?MXFP4 experts for (\S+)|Using (\S+) for (?:fused )?MoE (?:layers|experts)")
_DECODE = re.compile(r"Decode batch")
_GRAPH = re.compile(r"cuda[ _]graph[:=]\s*(True|False)", re.IGNORECASE)
_RUNNING = re.compile(r"#running-req: (\d+)")
_ACCEPT = re.compile(r"accept[ _]len(?:gth)?[:=]\s*([0-9.]+)")
_CACHED = re.compile(r"Prefill batch.*?#cached-token: (\d+)")
_CAPACITY = re.compile(r"max_total_num_tokens=(\d+)")
_REWRITTEN = re.compile(r"[^\n]*speculative_num_draft_tokens is adjusted[^\n]*")
_ALGORITHM = re.compile(r"['\"]?speculative_algorithm['\"]?\s*[=:]\s*['\"]?(\w+)")
_SIMULATED = re.compile(r"SIMULATED|simulated accept length is now|synthetic speculative acceptance is enabled")


@dataclass(frozen=True)
class Log:
    """A log's text, asked one thing at a time."""

    text: str

    @property
    def prepared(self) -> list[str]:
        """MoE backends that experts were prepared for, in lower case."""
        return sorted({(a or b).strip(",.").lower() for a, b in _PREPARED.findall(self.text)})

    @property
    def decode_lines(self) -> list[str]:
        """Lines of decode steps with one request running."""
        lines = [line for line in self.text.splitlines() if _DECODE.search(line)]
        return [line for line in lines if int((_RUNNING.search(line) or [0, 1])[1]) <= 1]

    @property
    def graphs(self) -> tuple[int, int]:
        """(decode lines with a CUDA graph, decode lines without)."""
        told = [m[1].lower() == "true" for line in self.decode_lines if (m := _GRAPH.search(line))]
        return sum(told), len(told) - sum(told)

    def captured(self, what: str) -> bool:
        """Whether a CUDA graph was captured for a pass of drafting: `target verify`, `draft decode`, `draft extend`."""
        return f"Capture {what} CUDA graph end" in self.text

    @property
    def accept_lengths(self) -> list[float]:
        """Accept length of each decode line that has one."""
        found = [m[1].rstrip(".") for line in self.decode_lines if (m := _ACCEPT.search(line))]
        return [float(v) for v in found if v.replace(".", "", 1).isdigit()]

    @property
    def capacity(self) -> int | None:
        """Tokens that the KV cache holds."""
        found = _CAPACITY.findall(self.text)
        return int(found[-1]) if found else None

    @property
    def head(self) -> str | None:
        return _first(HEAD_PROOF, self.text)

    @property
    def module_shared(self) -> bool | None:
        """True: the draft takes the head's whole module; False: its weight tensor only; None: the log does not say."""
        return False if TENSOR_ONLY.search(self.text) else True if MODULE_PROOF.search(self.text) else None

    @property
    def rewritten(self) -> str | None:
        """The warning about draft tokens that were not taken as asked."""
        found = _first(_REWRITTEN, self.text)
        return found.split("] ", 1)[-1].strip()[:200] if found else None

    @property
    def algorithm(self) -> str | None:
        """speculative_algorithm of the resolved arguments that the log prints at start."""
        found = [name for name in _ALGORITHM.findall(self.text) if name not in ("None", "null")]
        return found[-1] if found else None

    @property
    def simulated(self) -> bool:
        return _SIMULATED.search(self.text) is not None

    @property
    def plugin(self) -> bool:
        return PLUGIN in self.text


def _first(pattern: re.Pattern, text: str) -> str | None:
    found = pattern.search(text)
    return found[0] if found else None
