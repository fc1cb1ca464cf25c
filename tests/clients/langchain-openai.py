"""langchain-openai: chat and text models, streamed, in a batch, async."""

import asyncio
import json
import os
import urllib.request

from langchain_openai import ChatOpenAI, OpenAI

URL = os.environ["KVRM_URL"] + "/v1"
with urllib.request.urlopen(URL + "/models") as answer:
    MODEL = json.load(answer)["data"][0]["id"]
COMMON = {"model": MODEL, "base_url": URL, "api_key": "unused", "max_retries": 0, "timeout": 120}

chat = ChatOpenAI(max_tokens=8, temperature=0, **COMMON)
whole = chat.invoke("Say hello.")
assert whole.content and whole.usage_metadata["output_tokens"] <= 8, whole
assert whole.response_metadata["finish_reason"] in ("stop", "length")
text, usage = "", None
streaming = ChatOpenAI(max_tokens=8, temperature=0, stream_usage=True, **COMMON)
for chunk in streaming.stream("Say hello."):
    text += chunk.content or ""
    usage = chunk.usage_metadata or usage
assert text == whole.content, (text, whole.content)
assert usage["output_tokens"] == whole.usage_metadata["output_tokens"]
assert len(chat.batch(["one", "two", "three"])) == 3
# Sends a list of prompts and null for what nobody set.
assert isinstance(OpenAI(max_tokens=4, **COMMON).invoke("Once upon"), str)


async def count_chunks():
    return len([chunk async for chunk in chat.astream("hi")])


assert asyncio.run(count_chunks()) > 0
print("langchain-openai: as it should be")
