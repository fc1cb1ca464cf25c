"""The anthropic package: messages, streamed and not, sync and async, counts, errors."""

import asyncio
import os

import anthropic

URL = os.environ["KVRM_URL"]
client = anthropic.Anthropic(base_url=URL, api_key="unused", max_retries=0, timeout=120)
MODEL = client.models.list().data[0].id
HELLO = [{"role": "user", "content": "Say hello."}]
# The package has no parameter for the temperature any more.
ASKED = {"model": MODEL, "max_tokens": 12, "system": "Be short.",
         "extra_body": {"temperature": 0}}


def messages_stream_what_they_answer():
    whole = client.messages.create(messages=HELLO, **ASKED)
    assert (whole.type, whole.role) == ("message", "assistant"), whole
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.content[0].text
    assert whole.usage.output_tokens <= 12
    with client.messages.stream(messages=HELLO, **ASKED) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text, (text, whole)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be short.")
    for usage in (whole.usage, final.usage):
        cached = usage.cache_read_input_tokens or 0
        assert counted.input_tokens == usage.input_tokens + cached, (counted, usage)


def stop_sequences_end_an_answer():
    text = client.messages.create(messages=HELLO, **ASKED).content[0].text
    word = text.split()[-1]
    cut = client.messages.create(messages=HELLO, stop_sequences=[word], **ASKED)
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", word), cut
    assert word not in cut.content[0].text


def what_is_not_offered_is_a_bad_request():
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    for bad in ({"tools": [tool]}, {"thinking": {"type": "enabled", "budget_tokens": 1024}},
                {"messages": [{"role": "user", "content": [image]}]},
                {"messages": [*HELLO, {"role": "assistant", "content": "The"}]}):
        try:
            client.messages.create(**{**ASKED, "messages": HELLO, **bad})
            raise AssertionError(f"{bad} was taken")
        except anthropic.BadRequestError as error:
            assert error.body["error"]["type"] == "invalid_request_error", error.body
            assert "not offered" in error.body["error"]["message"], error.body


async def several_at_once():
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="unused", max_retries=0) as several:
        answers = await asyncio.gather(*[several.messages.create(messages=HELLO, **ASKED)
                                         for _ in range(8)])
        assert len({answer.content[0].text for answer in answers}) == 1


messages_stream_what_they_answer()
stop_sequences_end_an_answer()
what_is_not_offered_is_a_bad_request()
asyncio.run(several_at_once())
print(f"anthropic {anthropic.__version__}: as it should be")
