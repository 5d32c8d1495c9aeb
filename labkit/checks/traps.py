"""Every way known to this lab in which decoding is tuned and the result is not what it seems.

A trap has a number, a name, how it shows, what catches it, and a test by that name in tests/checks/test_traps.py. From
public reports of people who do this job, what must not be concluded from published numbers, and what was met here.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Trap:
    """catches: the check, doubt or refusal by its own name, and where it stands."""

    number: int
    name: str
    shows: str
    catches: str

    @property
    def test(self) -> str:
        return f"test_{self.number:02d}_{self.name.replace('-', '_')}"

    def as_dict(self) -> dict:
        return {**asdict(self), "test": f"tests/checks/test_traps.py::{self.test}"}


_LIST = (
    # An option is asked for and not in effect.
    (
        "bare-head",
        "a = 1.00, slower than no drafting, no error: the draft got the FP8 head's tensor without its scales",
        "check: draft shares the head",
    ),
    (
        "misread-draft",
        "no draft accepted, no error: a quantised draft layer read in another format",
        "check: accept length, first draft position",
    ),
    (
        "damaged-draft",
        "half of the first drafts right, none of the second: a loss that a > 1 does not show",
        "check: later draft positions",
    ),
    (
        "draft-tokens-rewritten",
        "six draft tokens asked for at topk 1, four run, one warning in the log",
        "check: draft tokens, draft steps",
    ),
    (
        "moe-fallback",
        "/server_info repeats the runner that was asked for, the log prepared experts for another",
        "check: MoE kernels",
    ),
    (
        "unknown-variable",
        "an environment variable that the release does not read is silently ignored",
        "check: variable",
    ),
    (
        "head-still-16-bit",
        "the FP8 head was asked for, and no proof line, field or byte of it is there",
        "check: FP8 head",
    ),
    ("flag-resolved-otherwise", "the command line says one thing and the resolved arguments another", "check: flag"),
    ("draft-loaded-and-idle", "draft weights in memory, an algorithm named, and no request drafted", "check: drafting"),
    (
        "drafting-by-another-name",
        "EAGLE3, DFLASH, DSPARK, ngram or the word NONE where NEXTN was looked for",
        "check: drafting algorithm",
    ),
    (
        "steps-that-change",
        "draft steps differ from request to request: one c is the mean of several machines",
        "check: draft steps; benefit: a against c",
    ),
    ("no-cuda-graph", "captured and reported as enabled, and decode lines say cuda graph: False", "check: CUDA graph"),
    (
        "two-heads",
        "FP32 logits and an FP8 head asked for together: one of them is ignored",
        "check: conflicting options",
    ),
    (
        "head-before-its-turn",
        "the arm before the FP8 head has it already, so the step shows nothing",
        "check: no FP8 head",
    ),
    ("reference-drafts", "the arm without drafting drafts: c comes out near 1", "check: no drafting"),
    (
        "memory-too-small",
        "the KV cache holds less than the context that is promised: requests are cut or preempted",
        "check: memory",
    ),
    ("another-engine", "something else behind /generate is taken for the default engine", "check: who is serving"),
    (
        "stale-accept-length",
        "the server's cumulative accept length is that of other requests",
        "check: accept length (from our own requests)",
    ),
    (
        "simulated-acceptance",
        "SGLANG_SIMULATE_ACC_LEN left on: any a, and text that is not the model's",
        "check: accept length, conflicting options",
    ),
    (
        "dummy-weights",
        "weights that were made up accept nothing, whatever is right",
        "check: accept length (cannot tell)",
    ),
    # What a client can be told.
    (
        "event-is-no-token",
        "an event carries several tokens: counted as one, the time per token is several times too long",
        "doubt: no token count, first event unknown",
    ),
    (
        "first-event-carries-several",
        "four tokens in the first event are divided into a time they took no part in",
        "row: decode_tokens",
    ),
    (
        "overcount",
        "completion_tokens above the ids that were sent: throughput beyond what is possible",
        "doubt: counts disagree, more tokens than drafts allow",
    ),
    ("early-stop", "ignore_eos is accepted and not honoured: every answer is short", "doubt: stopped early"),
    ("prompt-changed", "a template or a cut on the way: other tokens are read than were sent", "doubt: prompt changed"),
    (
        "pieces-for-the-whole",
        "events hold only what is new: the digest of the last one stands for the text",
        "row: text_sha256, stream",
    ),
    ("strange-framing", "events with names, ids, pings or CR LF are taken for an empty stream", "client: sse"),
    ("tail-event", "an event without tokens comes late and lengthens the decode time", "client: latency_s"),
    ("error-in-mid-stream", "an error event after some tokens looks like a short answer", "row: status error"),
    ("not-streamed", "all tokens in one event: no decode time to be seen", "doubt: one event"),
    (
        "held-back",
        "a proxy sends many events at once: the client's clock is the proxy's",
        "doubt: bursts, clocks far apart",
    ),
    ("flush-race", "a flush just after an answer is refused, and the sample with it", "client: flush waits"),
    ("warm-prefix", "prompt tokens from the prefix cache: TTFT too short", "doubt: cached prompt; check: prefix cache"),
    (
        "counts-contradict",
        "verify rounds, accepted drafts and histogram do not fit each other",
        "doubt: speculative counts disagree",
    ),
    # Does it pay?
    (
        "accepts-and-loses",
        "a = 2.7 and slower: a round costs more plain steps than it yields (a > 1 is not a > c)",
        "benefit: a against c",
    ),
    ("unpaired-prompts", "a 70% gain between two sets of prompts", "benefit: prompts"),
    (
        "all-on-no-better",
        "all three options on are no faster than the first two, for one of several reasons",
        "benefit: all on; causes (none is asserted)",
    ),
    ("machine-changed", "from one request on everything is slower, and the median hides it", "benefit: run order"),
    (
        "one-after-the-other",
        "arms measured one after the other: drift of the machine looks like a gain",
        "benefit: order",
    ),
    ("temperature-ignored", "one answer whatever the seed: greedy decoding passes for sampling", "benefit: sampling"),
    ("answers-alike", "other prompts, the same answer: what runs is not what was asked", "benefit: answers"),
    ("acceptance-fades", "accept length falls as the context grows", "benefit: acceptance over context"),
    (
        "acceptance-below-known",
        "far below what this model accepts at this draft length",
        "benefit: acceptance as known",
    ),
    ("random-ids", "random token ids say nothing about acceptance or text", "benefit: load"),
    (
        "faster-than-bytes",
        "a time per token below the byte floor: impossible, so a count or the account is wrong",
        "benefit: byte floor",
    ),
    ("disturbed-core", "the engine's thread had to wait for a core", "warning: disturbed"),
    # What must not be concluded from numbers.
    ("product-called-measured", "a reported percentage times a specification is called measured", "evidence: tiers"),
    ("gain-carried-over", "a batch-1 or synthetic gain is carried to another load", "compare: refuses unequal loads"),
    ("accuracy-unchanged", '"accuracy unchanged" without an interval and a paired test', "eval: mcnemar, intervals"),
    (
        "utilisation-across",
        "U of two byte models, models, recipes or loads side by side",
        "roofline: compare_utilisation",
    ),
    (
        "metric-swapped",
        "TPOT, throughput and latency stand in for each other",
        "compare: each named with its own ratio",
    ),
    (
        "energy-from-tpot",
        "joules or money from a time per token",
        "power: joules from a meter alone; units: none for money",
    ),
    ("long-context-mixed-in", "32K and more averaged with short contexts", "compare: refuses unequal prompt lengths"),
    (
        "text-must-be-equal",
        "a GPU's greedy text differs under speculation by batch numerics, and is called a fault",
        "checks: text is never compared between arms",
    ),
    # Drafting works, and its rounds cost more than they need.
    (
        "rounds-wait-for-the-host",
        "MTP on FlashInfer's MLA: drafts are accepted, and c is 2.0 instead of 1.7: each round waits",
        "check: rounds wait for the host",
    ),
    (
        "draft-extend-eager",
        "verify and draft are captured, the draft-extend pass is not, and nothing but a missing log line says so",
        "check: draft-extend CUDA graph",
    ),
    (
        "glue-graph-frozen",
        "the metadata glue graph with FlashInfer attention: a plan made of host values would be captured and go stale",
        "check: conflicting options",
    ),
    # llama.cpp.
    (
        "props-say-none",
        "/props shows speculative.types none while the server drafts: the reference drafts too, and c comes out near 1",
        "describe: the settings that an answer reports; check: no drafting",
    ),
    (
        "mean-of-drafting-passes",
        "the log's 'mean len' leaves out passes that found nothing to draft: 9.0 where a is 6.3",
        "row: verify_ct counts every pass",
    ),
    (
        "synthetic-acceptance",
        "--spec-synth-len invents the acceptance, and one line of the log is all that says so",
        "check: accept length, drafting pays (simulated)",
    ),
    (
        "count-lags-behind",
        "completion_tokens counts each event by itself, or some tokens not at all: a slow and short answer that is not",
        "doubt: counts disagree",
    ),
    (
        "drafts-from-earlier-answers",
        "llama.cpp's ngram-mod keeps its table from request to request: repeats of one prompt are drafted from its own"
        " earlier answer, 1.19 in the first pass and 5.0 in the second",
        "doubt over passes: the same text in fewer rounds",
    ),
)

TRAPS = tuple(Trap(i, *fields) for i, fields in enumerate(_LIST, 1))
