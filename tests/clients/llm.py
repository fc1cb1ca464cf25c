"""llm, the command: chat and text models entered by hand, streamed and not, a conversation."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

URL = os.environ["KVRM_URL"] + "/v1"
LLM = pathlib.Path(sys.executable).parent / "llm"
with urllib.request.urlopen(URL + "/models") as answer:
    MODEL = json.load(answer)["data"][0]["id"]

with tempfile.TemporaryDirectory() as folder:
    entry = "- model_id: {0}\n  model_name: {1}\n  api_base: {2}\n"
    pathlib.Path(folder, "extra-openai-models.yaml").write_text(
        entry.format("chat", MODEL, URL) + entry.format("text", MODEL, URL) +
        "  completion: true\n")
    environment = dict(os.environ, LLM_USER_PATH=folder, OPENAI_API_KEY="unused")

    def llm(*words):
        result = subprocess.run([LLM, *words], env=environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        return result.stdout

    greedy = ("-o", "max_tokens", "12", "-o", "temperature", "0")
    streamed = llm("-m", "chat", *greedy, "Say hello.")
    assert streamed.strip()
    assert llm("-m", "chat", "--no-stream", *greedy, "Say hello.") == streamed
    assert llm("-m", "chat", "-c", "And again.", "-o", "max_tokens", "8").strip()
    assert llm("-m", "text", "-o", "max_tokens", "8", "Once upon a time").strip()
    # Of text models llm logs no counts.
    logged = json.loads(llm("logs", "list", "-n", "0", "--json", "-m", "chat"))
    assert len(logged) == 3 and all(entry["output_tokens"] > 0 for entry in logged), logged
print("llm: as it should be")
