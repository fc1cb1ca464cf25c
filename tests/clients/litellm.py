"""litellm: its OpenAI providers, streamed and not, async, and how it maps errors."""

import asyncio
import json
import os
import urllib.request

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches a table at import

import litellm

URL = os.environ["KVRM_URL"] + "/v1"
with urllib.request.urlopen(URL + "/models") as answer:
    MODEL = json.load(answer)["data"][0]["id"]
HELLO = [{"role": "user", "content": "Say hello."}]
COMMON = {"api_base": URL, "api_key": "unused", "num_retries": 0, "timeout": 120}
CHAT = {"model": f"openai/{MODEL}", "messages": HELLO, "max_tokens": 8, "temperature": 0, **COMMON}

whole = litellm.completion(**CHAT)
assert whole.choices[0].message.content and whole.usage.completion_tokens <= 8
text, usage = "", None
for chunk in litellm.completion(stream=True, stream_options={"include_usage": True}, **CHAT):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = getattr(chunk, "usage", None) or usage
assert text == whole.choices[0].message.content, text
assert usage.completion_tokens == whole.usage.completion_tokens
raw = litellm.text_completion(model=f"text-completion-openai/{MODEL}", prompt="Once upon",
                              max_tokens=4, **COMMON)
assert raw.choices[0].text
hosted = litellm.completion(**{**CHAT, "model": f"hosted_vllm/{MODEL}"})
assert hosted.choices[0].message.content == whole.choices[0].message.content
try:
    litellm.completion(**{**CHAT, "temperature": -1})
    raise AssertionError("a negative temperature was taken")
except litellm.exceptions.BadRequestError:
    pass


async def several():
    return await asyncio.gather(*[litellm.acompletion(**CHAT) for _ in range(8)])


texts = {answer.choices[0].message.content for answer in asyncio.run(several())}
assert texts == {whole.choices[0].message.content}, texts
print("litellm: as it should be")
