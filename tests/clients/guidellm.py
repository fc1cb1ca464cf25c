"""guidellm, the command: both of OpenAI's APIs, several streams at once.

Its prompts are made with a tokenizer of one token a byte; what it measures is counted by the server.
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


def benchmark(folder, request_format):
    out = folder / "report.json"
    command = [
        pathlib.Path(sys.executable).parent / "guidellm", "run", "--backend",
        f"kind=openai_http,target={URL},model={MODEL},request_format={request_format}",
        "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}",
        "--profile", "kind=concurrent,streams=2",
        "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={OUTPUT_TOKENS}",
        "--output", f"kind=json,path={out}", "--disable-console-interactive"]
    result = subprocess.run(command, timeout=280, capture_output=True, text=True,
                            env=dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1"))
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return json.loads(out.read_text())["benchmarks"][0]["metrics"]


with tempfile.TemporaryDirectory() as name:
    directory = pathlib.Path(name)
    for api in ("/v1/chat/completions", "/v1/completions"):
        metrics = benchmark(directory, api)
        totals = metrics["request_totals"]
        assert (totals["successful"], totals["errored"]) == (REQUESTS, 0), totals
        assert metrics["output_token_count"]["successful"]["mean"] == OUTPUT_TOKENS
        assert metrics["time_to_first_token_ms"]["successful"]["mean"] > 0
print("guidellm: as it should be")
