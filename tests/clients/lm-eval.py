"""lm-eval, the command: log-likelihoods, rolling perplexity and generation, from local task files.

The tokenizer is the server's (/tokenizer_info, /tokenize), so nothing is fetched. What it computes
is checked against log-probabilities that the server gives when it is asked directly.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

URL = os.environ["KVRM_URL"]
TEXT = "The quick brown fox jumps over the lazy dog. It was a sunny day and all was well."
CHOICES = [{"q": "The capital of France is", "choices": ["Paris", "Tokyo"], "gold": 0},
           {"q": "Two plus two is", "choices": ["seven", "four"], "gold": 1}]
TASKS = {
    "choice": """
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{metric: acc}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: byte_perplexity}]
""",
    "until": """
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n\\n", "Q:"], max_gen_toks: 16, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}
ROWS = {"choice": CHOICES, "rolling": [{"text": TEXT}],
        "until": [{"q": "Q: Name a colour.\nA:", "a": "the"}, {"q": "Q: An animal.\nA:", "a": "x"}]}


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def loglikelihood(context, continuation):
    """Of `continuation`, from the server's own scores of one prompt."""
    scored = ask("/v1/completions", {"prompt": context + continuation, "max_tokens": 0, "echo": True,
                                     "logprobs": 1, "temperature": 0})["choices"][0]["logprobs"]
    return sum(value for offset, value in zip(scored["text_offset"], scored["token_logprobs"])
               if offset >= len(context) and value is not None)


def run(model, base, tasks, out, folder, *words):
    command = [pathlib.Path(sys.executable).parent / "lm_eval", "run", "--model", model,
               "--model_args", base, "--tasks", ",".join(tasks), "--include_path", folder,
               "--output_path", out, "--log_samples", *words]
    environment = dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1",
                       HF_HOME=str(folder / "hf"), TOKENIZERS_PARALLELISM="false",
                       OPENAI_API_KEY="unused")
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    (path,) = out.rglob("results_*.json")
    return json.loads(path.read_text())["results"]


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for task, text in TASKS.items():
        rows = folder / f"{task}.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS[task]))
        (folder / f"{task}.yaml").write_text(
            f"task: kvrm_{task}\ndataset_path: json\n"
            f"dataset_kwargs: {{data_files: {{test: {rows}}}}}\ntest_split: test\n" + text)
    model = ask("/v1/models")["data"][0]["id"]
    results = run("local-completions",
                  f"model={model},base_url={URL}/v1/completions,num_concurrent=2,max_length=1024,"
                  "tokenizer_backend=remote", [f"kvrm_{task}" for task in TASKS], folder / "raw",
                  folder)
    right = [max(range(2), key=lambda i, row=row: loglikelihood(row["q"], " " + row["choices"][i]))
             == row["gold"] for row in CHOICES]
    assert results["kvrm_choice"]["acc,none"] == sum(right) / len(right), (results, right)
    # The rolling log-likelihood begins behind an end token, so the first token counts as well.
    expected = math.exp(-loglikelihood("", TEXT) / len(TEXT.encode()))
    perplexity = results["kvrm_rolling"]["byte_perplexity,none"]
    assert abs(perplexity / expected - 1) < 0.2, (perplexity, expected)
    assert 0 <= results["kvrm_until"]["exact_match,none"] <= 1
    chat = run("local-chat-completions",
               f"model={model},base_url={URL}/v1/chat/completions,num_concurrent=2",
               ["kvrm_until"], folder / "chat", folder, "--apply_chat_template")
    assert "kvrm_until" in chat
print("lm-eval: as it should be")
