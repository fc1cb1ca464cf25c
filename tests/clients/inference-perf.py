"""inference-perf, the command: prompts that share their beginnings, arriving at random, both APIs.

It asks for Python 3.12 and runs on 3.11 as well. It draws token ids and wants its text to have just
as many tokens, so its tokenizer here is one of letters alone: half characters would not come back.
"""

import json
import os
import pathlib
import subprocess
import shutil
import string
import sys
import tempfile
import urllib.request

URL, TOKENIZER = os.environ["KVRM_URL"], os.environ["KVRM_TOKENIZER"]
OUTPUT_TOKENS = 8
with urllib.request.urlopen(URL + "/v1/models") as answer:
    MODEL = json.load(answer)["data"][0]["id"]


def of_letters(source, folder):
    shutil.copytree(source, folder)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    (end,) = tokenizer["added_tokens"]
    end["id"] = len(string.ascii_letters)
    tokenizer["model"]["vocab"] = {text: number for number, text in
                                   enumerate([*string.ascii_letters, end["content"]])}
    path.write_text(json.dumps(tokenizer))


def perform(folder, api):
    config = folder / f"{api}.json"  # which is YAML as well
    config.write_text(json.dumps({
        "api": {"type": api, "streaming": True},
        "data": {"type": "shared_prefix", "shared_prefix": {
            "num_groups": 2, "num_prompts_per_group": 4, "system_prompt_len": 48,
            "question_len": 16, "output_len": OUTPUT_TOKENS}},
        "load": {"type": "poisson", "stages": [{"rate": 4, "duration": 3}], "num_workers": 1},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": URL, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(folder / "letters")},
        "report": {"request_lifecycle": {"summary": True}},
        "storage": {"local_storage": {"path": str(folder / api)}}}))
    command = [pathlib.Path(sys.executable).parent / "inference-perf", "--config_file", config]
    result = subprocess.run(command, timeout=280, capture_output=True, text=True,
                            env=dict(os.environ, HF_HUB_OFFLINE="1"))
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return json.loads((folder / api / "summary_lifecycle_metrics.json").read_text())


with tempfile.TemporaryDirectory() as name:
    of_letters(TOKENIZER, pathlib.Path(name, "letters"))
    for kind in ("completion", "chat"):
        figures = perform(pathlib.Path(name), kind)
        assert figures["successes"]["count"] > 0 and figures["failures"]["count"] == 0, figures
print("inference-perf: as it should be")
