"""Prometheus metrics under SGLang's names (`sglang:...`), so that dashboards and checks made for it work."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

# Bucket edges in seconds. A token of this engine takes about a millisecond, so the edges start well below.
TOKEN_EDGES = (0.0002, 0.0005, 0.00075, 0.001, 0.00125, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
FIRST_EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
REQUEST_EDGES = (0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


@dataclass
class Histogram:
    """Counts by upper edge; unlike the library's own it takes a whole request's tokens in one step."""

    edges: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self):
        self.counts = [0] * (len(self.edges) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.edges, value)] += times
        self.total += value * times

    def family(self, name: str, text: str, model: str) -> Metric:
        names = [*(str(edge) for edge in self.edges), "+Inf"]
        family = HistogramMetricFamily(f"sglang:{name}", text, labels=["model_name"])
        family.add_metric([model], list(zip(names, accumulate(self.counts), strict=True)), self.total)
        return family


@dataclass(eq=False)  # a registry keeps it by identity
class Metrics:
    """Totals since the start; `observe` takes one finished request. Seconds and tokens."""

    model: str
    requests: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    verify_calls: int = 0
    last_throughput: float = 0.0  # tokens/s of the last request's decoding
    running: int = 0
    waiting: int = 0
    first: Histogram = field(default_factory=lambda: Histogram(FIRST_EDGES))
    between: Histogram = field(default_factory=lambda: Histogram(TOKEN_EDGES))
    whole: Histogram = field(default_factory=lambda: Histogram(REQUEST_EDGES))

    def __post_init__(self):
        self.flush()

    def flush(self) -> None:
        """Forget the accept statistics, as SGLang does at /flush_cache; counters and histograms go on there, too."""
        self._verified = self._calls = self._correct = self._proposed = 0

    def observe(self, run) -> None:
        stats, tokens = run.generation.stats, len(run.ids)
        self.requests += 1
        self.aborted += run.finish is None or run.finish["type"] == "abort"
        self.prompt_tokens += len(run.job.prompt)
        self.generation_tokens += tokens
        if stats.verify_ct and run.finish is not None:
            self.verify_calls += stats.verify_ct
            self._calls += stats.verify_ct
            self._verified += tokens  # output tokens of requests that speculated
            self._correct += stats.correct_drafts
            self._proposed += stats.proposed_drafts
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
        """Output tokens per verify call since the last flush; 0.0 before the first."""
        return self._verified / self._calls if self._calls else 0.0

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks of a collector."""
        rate = self._correct / self._proposed if self._proposed else 0.0
        gauges = [
            ("num_running_reqs", "The number of running requests", self.running),
            ("num_queue_reqs", "The number of requests in the waiting queue", self.waiting),
            ("gen_throughput", "The last request's generation throughput (token/s)", self.last_throughput),
            ("cache_hit_rate", "The prefix cache hit rate (this engine has no prefix cache)", 0.0),
            ("spec_accept_length", "The average accept length since the last flush", self.accept_length),
            ("spec_accept_rate", "The share of proposed drafts that were right since the last flush", rate),
        ]
        counters = [
            ("spec_verify_calls_total", "Number of verification calls", self.verify_calls),
            ("prompt_tokens_total", "Number of prefill tokens processed", self.prompt_tokens),
            ("generation_tokens_total", "Number of generation tokens processed", self.generation_tokens),
            ("num_requests_total", "Number of requests processed", self.requests),
            ("num_aborted_requests_total", "Number of requests aborted", self.aborted),
        ]
        for kind, rows in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
            for name, text, value in rows:
                family = kind(f"sglang:{name}", text, labels=["model_name"])
                family.add_metric([self.model], value)
                yield family
        yield self.first.family("time_to_first_token_seconds", "Time to first token", self.model)
        text = "Mean time between tokens, counted once per token"
        yield self.between.family("inter_token_latency_seconds", text, self.model)
        yield self.whole.family("e2e_request_latency_seconds", "Time from request to last token", self.model)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that the Accept header asks for (Prometheus text or OpenMetrics), and its type."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        if "application/openmetrics-text" in accept:
            # The library's own choice writes sglang_ for sglang: in half of the lines.
            return openmetrics.generate_latest(registry, escaping="allow-utf-8"), openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
