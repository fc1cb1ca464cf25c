"""vLLM's own load generator (`vllm bench serve`): both of OpenAI's APIs, at random times.

It counts a prompt by /tokenize; where that is not what its tokenizer says, it sends each prompt
through /tokenize and /detokenize first. Its tokenizer here is one of a token a byte, so it does.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

URL, TOKENIZER = os.environ["KVRM_URL"], os.environ["KVRM_TOKENIZER"]
REQUESTS, OUTPUT_TOKENS = 8, 8
with urllib.request.urlopen(URL + "/v1/models") as answer:
    MODEL = json.load(answer)["data"][0]["id"]


def bench(folder, backend, endpoint):
    command = [
        pathlib.Path(sys.executable).parent / "vllm", "bench", "serve", "--backend", backend,
        "--base-url", URL, "--endpoint", endpoint, "--model", MODEL, "--tokenizer", TOKENIZER,
        "--dataset-name", "random", "--random-input-len", "32", "--random-output-len",
        str(OUTPUT_TOKENS), "--num-prompts", str(REQUESTS), "--request-rate", "8", "--ignore-eos",
        "--save-result", "--result-dir", folder, "--result-filename", backend + ".json"]
    result = subprocess.run(command, timeout=280, capture_output=True, text=True, cwd=folder,
                            env=dict(os.environ, HF_HUB_OFFLINE="1"))
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return json.loads((folder / (backend + ".json")).read_text())


with tempfile.TemporaryDirectory() as name:
    directory = pathlib.Path(name)
    for backend, endpoint in (("openai", "/v1/completions"),
                              ("openai-chat", "/v1/chat/completions")):
        figures = bench(directory, backend, endpoint)
        assert (figures["completed"], figures["failed"]) == (REQUESTS, 0), figures
        assert figures["total_output_tokens"] == REQUESTS * OUTPUT_TOKENS, figures
        assert figures["mean_ttft_ms"] > 0 and figures["mean_itl_ms"] > 0, figures
print("vllm bench: as it should be")
