"""Prometheus text under SGLang's names (`sglang:...`), so that dashboards and checks made for it work."""

import bisect
from dataclasses import dataclass, field

# Bucket edges in seconds. A token of this engine takes about a millisecond, so the edges start well below.
TOKEN_EDGES = (0.0002, 0.0005, 0.00075, 0.001, 0.00125, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
FIRST_EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUEST_EDGES = (0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


@dataclass
class Histogram:
    """Counts by upper edge."""

    edges: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self):
        self.counts = [0] * (len(self.edges) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.edges, value)] += times
        self.total += value * times

    def lines(self, name: str, labels: str) -> list[str]:
        out, running = [], 0
        for edge, count in zip((*self.edges, "+Inf"), self.counts, strict=True):
            running += count
            out.append(f'{name}_bucket{{le="{edge}",{labels}}} {running}')
        return [*out, f"{name}_sum{{{labels}}} {self.total:.9g}", f"{name}_count{{{labels}}} {running}"]


@dataclass
class Metrics:
    """Totals since the start; `observe` takes one finished request. Seconds and tokens."""

    requests: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    verify_calls: int = 0
    verified_tokens: int = 0  # output tokens of requests that speculated
    correct_drafts: int = 0
    proposed_drafts: int = 0
    last_throughput: float = 0.0  # tokens/s of the last request's decoding
    first: Histogram = field(default_factory=lambda: Histogram(FIRST_EDGES))
    between: Histogram = field(default_factory=lambda: Histogram(TOKEN_EDGES))
    whole: Histogram = field(default_factory=lambda: Histogram(REQUEST_EDGES))

    def observe(self, run) -> None:
        stats, tokens = run.generation.stats, len(run.ids)
        self.requests += 1
        self.aborted += run.finish is None or run.finish["type"] == "abort"
        self.prompt_tokens += len(run.job.prompt)
        self.generation_tokens += tokens
        if stats.verify_ct and run.finish is not None:
            self.verify_calls += stats.verify_ct
            self.verified_tokens += tokens
            self.correct_drafts += stats.correct_drafts
            self.proposed_drafts += stats.proposed_drafts
        if run.first_token is None or run.ended is None:
            return
        self.first.observe(run.first_token - run.arrived)
        self.whole.observe(run.ended - run.arrived)
        if tokens > 1:
            each = (run.ended - run.first_token) / (tokens - 1)
            self.between.observe(each, tokens - 1)
            self.last_throughput = 1 / each if each > 0 else 0.0

    @property
    def accept_length(self) -> float:
        return self.verified_tokens / self.verify_calls if self.verify_calls else 0.0

    def text(self, model: str, running: int, waiting: int) -> str:
        labels = f'model_name="{_escape(model)}"'
        rate = self.correct_drafts / self.proposed_drafts if self.proposed_drafts else 0.0
        plain = [
            ("num_running_reqs", "gauge", "The number of running requests", running),
            ("num_queue_reqs", "gauge", "The number of requests in the waiting queue", waiting),
            ("gen_throughput", "gauge", "The last request's generation throughput (token/s)", self.last_throughput),
            ("cache_hit_rate", "gauge", "The prefix cache hit rate (this engine has no prefix cache)", 0.0),
            ("spec_accept_length", "gauge", "The average accept length of speculative decoding", self.accept_length),
            ("spec_accept_rate", "gauge", "The share of proposed drafts that were right", rate),
            ("spec_verify_calls_total", "counter", "Number of verification calls", self.verify_calls),
            ("prompt_tokens_total", "counter", "Number of prefill tokens processed", self.prompt_tokens),
            ("generation_tokens_total", "counter", "Number of generation tokens processed", self.generation_tokens),
            ("num_requests_total", "counter", "Number of requests processed", self.requests),
            ("num_aborted_requests_total", "counter", "Number of requests aborted", self.aborted),
        ]
        lines = []
        for name, kind, text, value in plain:
            lines += _head(name, kind, text) + [f"sglang:{name}{{{labels}}} {value:.9g}"]
        for name, text, histogram in (
            ("time_to_first_token_seconds", "Time to first token", self.first),
            ("inter_token_latency_seconds", "Mean time between tokens, counted once a token", self.between),
            ("e2e_request_latency_seconds", "Time from request to last token", self.whole),
        ):
            lines += _head(name, "histogram", text) + histogram.lines(f"sglang:{name}", labels)
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP sglang:{name} {text}", f"# TYPE sglang:{name} {kind}"]


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
