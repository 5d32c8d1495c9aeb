"""What load tools add to OpenAI's fields: token ids in every choice, a least length, a prompt-cache switch."""

import json

import pytest


@pytest.mark.parametrize(
    "route, prompt",
    [
        ("/v1/completions", {"prompt": "the words"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "naïve 東京 🙂"}]}),
    ],
)
def test_token_ids_of_a_stream_are_those_of_the_whole_answer(server, route, prompt):
    ask = prompt | {
        "max_tokens": 24,
        "temperature": 0,
        "return_token_ids": True,
        "ignore_eos": True,
        "min_tokens": 24,
        "cache_prompt": False,
    }
    whole = server.post(route, ask).json()["choices"][0]["token_ids"]
    assert len(whole) == 24
    streamed = server.post(route, ask | {"stream": True}).text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert [token for event in events for token in event["choices"][0]["token_ids"]] == whole


def test_token_ids_only_when_asked_for(server):
    assert "token_ids" not in server.post("/v1/completions", {"prompt": "the", "max_tokens": 2}).json()["choices"][0]


def test_least_length_without_ignore_eos_is_refused(server):
    answer = server.post("/v1/completions", {"prompt": "the", "max_tokens": 4, "min_tokens": 2})
    assert answer.status_code == 400 and answer.json()["param"] == "min_tokens"
