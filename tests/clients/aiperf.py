"""aiperf, the command: chats in a closed loop, completions that arrive at random."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

URL = os.environ["KVRM_URL"]
REQUESTS, OUTPUT_TOKENS = 12, 16
with urllib.request.urlopen(URL + "/v1/models") as answer:
    MODEL = json.load(answer)["data"][0]["id"]

TOKENIZER = os.environ["KVRM_TOKENIZER"]

# A local tokenizer folder is refused where the hub is said to be off.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}


def profile(*words):
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [pathlib.Path(sys.executable).parent / "aiperf", "profile", "-m", MODEL, "--url",
                   URL, "--streaming", "--tokenizer", TOKENIZER, "--isl", "32", "--osl",
                   OUTPUT_TOKENS, "--request-count", REQUESTS, "--extra-inputs", "ignore_eos:true",
                   "--use-server-token-count", "--random-seed", "1", "--ui", "none",
                   "--artifact-dir", folder, *words]
        result = subprocess.run([str(word) for word in command], env=ENVIRONMENT, timeout=280,
                                capture_output=True, text=True)
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
        (path,) = pathlib.Path(folder).rglob("profile_export_aiperf.json")
        return json.loads(path.read_text())


def check(figures):
    def average(name):
        return (figures.get(name) or {}).get("avg")

    assert average("request_count") == REQUESTS, figures["request_count"]
    assert not average("error_request_count"), figures["error_request_count"]
    # The server's count, which the request fixed.
    assert average("output_sequence_length") == OUTPUT_TOKENS, figures["output_sequence_length"]
    assert average("time_to_first_token") > 0 and average("inter_token_latency") > 0


check(profile("--endpoint-type", "chat", "--concurrency", 4))
check(profile("--endpoint-type", "completions", "--request-rate", 8, "--arrival-pattern",
              "poisson"))
print("aiperf: as it should be")
