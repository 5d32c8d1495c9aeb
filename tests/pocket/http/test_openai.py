"""OpenAI's own client, unchanged."""

from pathlib import Path

import openai
import pytest


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


MESSAGES = [{"role": "system", "content": "say words"}, {"role": "user", "content": "the tiny model"}]


def test_models(client):
    """The id is the model's path, as on SGLang: a tool that looks for a tokenizer finds one there."""
    [model] = client.models.list().data
    assert Path(model.id, "tokenizer.json").exists()
    assert model.model_dump()["max_model_len"] == 512
    assert client.models.retrieve(model.id).id == model.id
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.models.retrieve("gpt-9")


def test_completion(client):
    answer = client.completions.create(model="pocket", prompt="the words", max_tokens=6, temperature=0)
    assert answer.object == "text_completion" and answer.model == "pocket"
    assert answer.usage.completion_tokens == 6 == answer.usage.total_tokens - answer.usage.prompt_tokens
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("prompt", [[20, 30], ["the words"], [[20, 30]]])
def test_completion_takes_ids_and_a_batch_of_one(client, prompt):
    assert client.completions.create(model="m", prompt=prompt, max_tokens=2).usage.completion_tokens == 2


def test_streamed_completion_is_the_whole_one(client):
    ask = {"model": "m", "prompt": "the words", "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**ask).choices[0].text
    chunks = list(client.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 20
    assert all(c.usage is None for c in chunks[:-1])


def test_chat(client):
    answer = client.chat.completions.create(model="m", messages=MESSAGES, max_completion_tokens=5, temperature=0)
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.completion_tokens == 5
    expected = client.completions.create(
        model="m", prompt="system: say words\nuser: the tiny model\nassistant:", max_tokens=5, temperature=0
    )
    assert answer.choices[0].message.content == expected.choices[0].text


def test_streamed_chat(client):
    ask = {"model": "m", "messages": MESSAGES, "max_tokens": 20, "temperature": 0}
    whole = client.chat.completions.create(**ask).choices[0].message.content
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert deltas[0].role == "assistant" and all(d.role is None for d in deltas[1:])
    assert "".join(d.content or "" for d in deltas) == whole
    assert chunks[-1].usage.completion_tokens == 20


def test_usage_in_every_chunk(client):
    chunks = list(
        client.completions.create(
            model="m",
            prompt="the",
            max_tokens=10,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"stream_options": {"continuous_usage_stats": True}},
        )
    )
    counts = [c.usage.completion_tokens for c in chunks]
    assert counts == sorted(counts) and counts[-1] == 10


def test_stop_and_seed(client):
    ask = {"model": "m", "prompt": "the", "max_tokens": 40, "temperature": 1, "seed": -3}
    text = client.completions.create(**ask).choices[0].text
    assert text == client.completions.create(**ask).choices[0].text
    at = next(i for i in range(4, len(text)) if text[i] != "\ufffd")
    cut = client.completions.create(**ask, stop=text[at])
    assert cut.choices[0].finish_reason == "stop" and cut.choices[0].text == text[: text.index(text[at])]


def test_errors_name_the_field(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "tool", "content": "x", "tool_call_id": "1"}])
    assert caught.value.param == "messages"  # this template takes no tool messages, and says so
    assert "no tools" in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "poet", "content": "x"}])
    assert caught.value.param == "messages[0].role"
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="m", prompt="the", max_tokens=4096)


def test_what_is_not_implemented_says_so(client):
    with pytest.raises(openai.BadRequestError, match="logit_bias.*does not implement"):
        client.completions.create(model="m", prompt="the", logit_bias={"20": 1})
