"""The openai package: both APIs, streamed and not, sync and async, what it parses of each answer."""

import asyncio
import os

import openai

URL = os.environ["KVRM_URL"] + "/v1"
client = openai.OpenAI(base_url=URL, api_key="unused", max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
HELLO = [{"role": "user", "content": "Say hello."}]
GREEDY = {"model": MODEL, "temperature": 0}


def models():
    assert client.models.retrieve(MODEL).id == MODEL
    try:
        client.models.retrieve("no-such-model")
        raise AssertionError("an unknown model was found")
    except openai.NotFoundError as error:
        assert error.body["code"] == "model_not_found", error.body


def chat_streams_what_it_answers():
    whole = client.chat.completions.create(messages=HELLO, max_completion_tokens=12, **GREEDY)
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    text, reasons, usage = "", [], None
    for chunk in client.chat.completions.create(messages=HELLO, max_tokens=12, stream=True,
                                                stream_options={"include_usage": True}, **GREEDY):
        if chunk.usage is not None:
            assert chunk.choices == [] and usage is None
            usage = chunk.usage
        for part in chunk.choices:
            text += part.delta.content or ""
            reasons += [part.finish_reason] if part.finish_reason else []
    assert text == choice.message.content, (text, choice.message.content)
    assert reasons == [choice.finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(messages=HELLO, max_tokens=4, model=MODEL) as stream:
        for _ in stream:
            pass
        assert stream.current_completion_snapshot.choices[0].message.content is not None


def fields_of_the_sampler():
    def text(**fields):
        return client.completions.create(prompt="Once upon a time", max_tokens=12, model=MODEL,
                                         **fields).choices[0].text

    drawn = {"temperature": 1.2, "seed": 7}
    assert text(**drawn) == text(**drawn)
    assert text(**drawn) != text(temperature=1.2, seed=8)
    plain = text(temperature=0)
    assert text(temperature=0, presence_penalty=0, frequency_penalty=0, logit_bias={}) == plain
    forced = client.completions.create(prompt="x", max_tokens=3, logit_bias={"28": 100}, logprobs=0,
                                       **GREEDY)
    assert len(set(forced.choices[0].logprobs.tokens)) == 1, forced
    for bad in ({"logit_bias": {"999999": 1}}, {"presence_penalty": 3}, {"temperature": -1}):
        try:
            text(**bad)
            raise AssertionError(f"{bad} was taken")
        except openai.BadRequestError as error:
            assert next(iter(bad)) in error.body["param"], error.body


def choices_and_logprobs():
    several = client.chat.completions.create(messages=HELLO, max_tokens=8, n=3, temperature=1,
                                             seed=3, model=MODEL)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in several.choices}) > 1
    answer = client.chat.completions.create(messages=HELLO, max_tokens=5, logprobs=True,
                                            top_logprobs=3, **GREEDY)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 3 and token.logprob == token.top_logprobs[0].logprob
    joined = bytes(byte for token in content for byte in token.bytes).decode()
    assert joined.startswith(answer.choices[0].message.content)


def completions_in_full():
    scored = client.completions.create(prompt="Once upon a time", max_tokens=1, echo=True,
                                       logprobs=1, **GREEDY)
    entries = scored.choices[0].logprobs
    assert entries.token_logprobs[0] is None
    assert len(entries.tokens) == len(entries.token_logprobs) == scored.usage.total_tokens
    assert scored.choices[0].text.startswith("Once upon a time")
    only = client.completions.create(prompt="Once upon a time", max_tokens=0, echo=True, logprobs=1,
                                     **GREEDY)
    assert only.choices[0].logprobs.token_logprobs == entries.token_logprobs[:-1]
    for prompt, count in (("a b", 1), (["a b", "c d e"], 2), ([5, 6, 7], 1), ([[5], [6, 7]], 2)):
        answer = client.completions.create(prompt=prompt, max_tokens=2, model=MODEL)
        assert [choice.index for choice in answer.choices] == list(range(count))
    assert client.completions.create(prompt=[5, 6, 7], max_tokens=1,
                                     model=MODEL).usage.prompt_tokens == 3
    stopped = client.completions.create(prompt="1 2 3 4 5 6", stop=["9 10 11"], max_tokens=40,
                                        **GREEDY).choices[0]
    assert "9 10 11" not in stopped.text
    longer = client.chat.completions.create(messages=HELLO, max_tokens=40, model=MODEL,
                                            extra_body={"ignore_eos": True, "min_tokens": 40})
    assert longer.usage.completion_tokens == 40


def responses():
    asked = {"input": "Say hello.", "instructions": "Be short.", "max_output_tokens": 12, **GREEDY}
    whole = client.responses.create(metadata={"run": "7"}, **asked)
    assert whole.output_text and whole.status in ("completed", "incomplete"), whole
    assert whole.metadata == {"run": "7"} and whole.instructions == "Be short."
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    with client.responses.stream(**asked) as stream:
        text = "".join(event.delta for event in stream
                       if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text, (text, whole.output_text)
    scored = client.responses.create(include=["message.output_text.logprobs"], top_logprobs=2,
                                     **asked)
    entries = scored.output[0].content[0].logprobs
    assert len(entries) == scored.usage.output_tokens
    for entry in entries:
        assert len(entry.top_logprobs) == 2 and entry.logprob == entry.top_logprobs[0].logprob
    turns = [{"role": "user", "content": "Say hello."},
             {"role": "assistant", "content": whole.output_text},
             {"role": "user", "content": "Again."}]
    assert client.responses.create(input=turns, max_output_tokens=4, model=MODEL).output_text
    for bad in ({"tools": [{"type": "web_search"}]}, {"previous_response_id": "resp_1"},
                {"text": {"format": {"type": "json_object"}}}):
        try:
            client.responses.create(**asked, **bad)
            raise AssertionError(f"{bad} was taken")
        except openai.BadRequestError as error:
            assert error.body["param"] == next(iter(bad)), error.body


async def many_at_once():
    async with openai.AsyncOpenAI(base_url=URL, api_key="unused", max_retries=0) as several:
        async def one(number):
            text = ""
            stream = await several.chat.completions.create(
                messages=[{"role": "user", "content": f"Count to {number}."}], max_tokens=8,
                stream=True, **GREEDY)
            async for chunk in stream:
                text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            return text

        texts = await asyncio.gather(*[one(number) for number in range(16)])
        assert all(texts)
        assert texts[3] == await one(3), "the same alone as among others"
        stream = await several.chat.completions.create(
            messages=HELLO, max_tokens=200, stream=True, model=MODEL,
            extra_body={"ignore_eos": True})
        async for _ in stream:
            break
        await stream.close()


models()
chat_streams_what_it_answers()
fields_of_the_sampler()
choices_and_logprobs()
completions_in_full()
responses()
asyncio.run(many_at_once())
print(f"openai {openai.__version__}: as it should be")
