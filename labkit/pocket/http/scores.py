"""Log-probabilities in the shapes that clients know: SGLang's, /v1/completions', /v1/chat/completions'."""

from typing import Any

from labkit.pocket.engine import Score
from labkit.pocket.http.reply import Reply

Scored = list[tuple[int, Score | None]]  # a token and its score; None for the first of a text, which has no past


def of_prompt(run: Reply) -> Scored:
    """The prompt's tokens from scoring.start on."""
    prompt, start = run.job.prompt, run.job.scoring.start
    known = run.ids or run.finish and run.finish["type"] == "length"  # not before the prompt has passed
    if start is None or not known:
        return []
    first: Scored = [(prompt[0], None)] if start == 0 else []
    return first + list(zip(prompt[max(start, 1) :], run.generation.prompt_scores(), strict=True))


def of_output(run: Reply, start: int = 0, end: int | None = None) -> Scored:
    """Output tokens start .. end - 1 of those that the client was told of."""
    end = len(run.ids) if end is None else end
    return list(zip(run.ids[start:end], run.generation.scores(start, end), strict=True))


def sglang(run: Reply) -> dict[str, Any]:
    """meta_info's lists: [log-probability, id, text or null] of each token, and lists of the same for the likeliest."""
    if run.job.scoring is None:
        return {}
    out = {}
    for name, scored in (("input", of_prompt(run)), ("output", of_output(run))):
        entry = _entries(run)
        out[f"{name}_token_logprobs"] = [entry(token, score and score.logprob) for token, score in scored]
        if run.job.scoring.top:
            out[f"{name}_top_logprobs"] = [score and [entry(token, p) for token, p in score.top] for _, score in scored]
    return out


def _entries(run: Reply):
    text = run.token_text if run.job.text_scores else lambda token: None
    return lambda token, logprob: [logprob, token, text(token)]


def completion(run: Reply, scored: Scored, offset: int) -> dict[str, Any]:
    """OpenAI's four lists of /v1/completions; `offset`: characters of text before the first token."""
    tokens = [run.token_text(token) for token, _ in scored]
    offsets = []
    for text in tokens:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": tokens,
        "token_logprobs": [score and score.logprob for _, score in scored],
        "top_logprobs": [score and _named(run, score) for _, score in scored] if run.job.scoring.top else None,
        "text_offset": offsets,
    }


def _named(run: Reply, score: Score) -> dict[str, float]:
    out: dict[str, float] = {}
    for token, logprob in score.top:
        out.setdefault(run.token_text(token), logprob)  # of two tokens that read the same the likelier one stays
    return out


def chat(run: Reply, scored: Scored) -> dict[str, Any]:
    """OpenAI's list of /v1/chat/completions."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {"token": run.token_text(token), "bytes": list(run.token_bytes(token)), "logprob": logprob}

    return {
        "content": [
            entry(token, score.logprob) | {"top_logprobs": [entry(*likely) for likely in score.top]}
            for token, score in scored
        ]
    }
