#!/usr/bin/env python3
"""Asks an OpenAI-compatible server one chat question and prints the answer as it comes.

Standard library only. Exit code 0: a whole answer came; 1: none or a broken one came; the reason
goes to stderr. The answer goes to stdout, how fast it came to stderr.
"""

import argparse
import http.client
import json
import sys
import time


# The model is small: told to be brief it answers in one sentence. With the template's own system
# message its first two choices lie 0.08 apart in f32, so that any rounding may swap them.
SYSTEM = "You are a helpful assistant. Answer in one short sentence."


class BrokenAnswer(Exception):
    """The server answered, but not with a whole chat answer."""


def events(lines):
    """Data of each server-sent event of `lines` (bytes); a data field may span several lines."""
    data = []
    for line in lines:
        line = line.rstrip(b"\r\n")
        if not line:
            if data:
                yield "\n".join(data)
            data = []
        elif line.startswith(b"data:"):
            field = line[len(b"data:"):].decode("utf-8")
            data.append(field[1:] if field.startswith(" ") else field)


def answer_parts(lines):
    """Yields ("text", str), ("usage", dict) and ("finish", str) as they come, up to [DONE]."""
    for data in events(lines):
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise BrokenAnswer(chunk["error"].get("message", chunk["error"]))
        for choice in chunk.get("choices", []):
            if choice.get("delta", {}).get("content"):
                yield "text", choice["delta"]["content"]
            if choice.get("finish_reason"):
                yield "finish", choice["finish_reason"]
        if chunk.get("usage"):
            yield "usage", chunk["usage"]
    raise BrokenAnswer("the stream ended without [DONE]")


def post(connection, question, max_tokens):
    body = {
        "messages": [{"role": "system", "content": SYSTEM},
                     {"role": "user", "content": question}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        text = response.read(2000).decode("utf-8", "replace")
        raise BrokenAnswer(f"HTTP {response.status}: {text}")
    return response


def report(started, first, last, usage):
    """One line: how fast the answer came. The first token's time is not part of the rate."""
    tokens = usage.get("completion_tokens", 0)
    line = f"{tokens} tokens, first text after {(first - started) * 1000:.0f} ms"
    if tokens > 1 and last > first:
        line += f", then {(tokens - 1) / (last - first):.1f} tokens/s"
    return line + f", prompt of {usage.get('prompt_tokens', 0)} tokens"


def ask(host, port, question, max_tokens, out, log):
    connection = http.client.HTTPConnection(host, port, timeout=120)
    started = time.monotonic()
    first = last = None
    usage, finish = {}, None
    for kind, value in answer_parts(post(connection, question, max_tokens)):
        if kind == "text":
            last = time.monotonic()
            first = first or last
            print(value, end="", file=out, flush=True)
        elif kind == "usage":
            usage = value
        else:
            finish = value
    print(file=out, flush=True)
    if first is None or finish is None:
        raise BrokenAnswer("the answer had no text or no finish_reason")
    print(report(started, first, last, usage), file=log)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("question")
    options = parser.parse_args()
    try:
        ask(options.host, options.port, options.question, options.max_tokens, sys.stdout,
            sys.stderr)
    except (OSError, http.client.HTTPException, ValueError, BrokenAnswer) as error:
        print(f"ask.py: {options.host}:{options.port}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
