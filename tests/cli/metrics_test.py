"""/metrics read by Prometheus' own parser, against docs/metrics.md."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

from program import ROOT, WithRandomModel, main, start

PARSER = "prometheus-client==0.26.0"
READ = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families as families
print(json.dumps([[f.name, f.type, [[s.name, s.labels, s.value] for s in f.samples]]
                  for f in families(sys.stdin.read())]))
"""


def parser():
    """An interpreter with the parser; made once in the build folder."""
    folder = pathlib.Path(os.environ["KVRM_PROGRAM"]).parent / "python-metrics"
    made = subprocess.run([ROOT / "tools" / "python-env", folder, PARSER], capture_output=True)
    if made.returncode == 0:
        return made.stdout.decode().strip()
    if os.environ.get("CI") == "true":
        raise RuntimeError(made.stderr.decode())
    raise unittest.SkipTest(f"{PARSER} cannot be installed here")


def documented():
    """Names of the tables of docs/metrics.md."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    return set(re.findall(r"^\| `((?:kvrm_|vllm:)[a-z_]+)", text, re.MULTILINE))


class Metrics(WithRandomModel):
    def scrape(self):
        python = parser()
        process = start("serve", "-m", self.model, "--port", "0", "--threads", "1")
        try:
            url = self.wait_for_url(process)
            body = {"prompt": "the quick brown fox", "max_tokens": 8, "ignore_eos": True}
            for stream in (False, True):
                request = urllib.request.Request(
                    url + "/v1/completions", json.dumps({**body, "stream": stream}).encode(),
                    {"Content-Type": "application/json"})
                urllib.request.urlopen(request, timeout=60).read()
            text = self.settled(url)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        parsed = subprocess.run([python, "-c", READ], input=text, capture_output=True, check=True)
        return text.decode(), json.loads(parsed.stdout)

    def settled(self, url):
        """The metrics once the last step is over: a client may have its last token before that."""
        text, before = b"", None
        deadline = time.monotonic() + 30
        while text != before or b"kvrm_output_tokens_total 16\n" not in text:
            self.assertLess(time.monotonic(), deadline, text.decode())
            time.sleep(0.1)
            steps = [line for line in text.splitlines() if line.startswith(b"kvrm_step")]
            text = urllib.request.urlopen(url + "/metrics", timeout=60).read()
            before = text if steps == [line for line in text.splitlines()
                                       if line.startswith(b"kvrm_step")] else None
        return text

    def test_PrometheusReadsEveryLineAndEachNameIsDocumented(self):
        text, families = self.scrape()
        samples = {}
        for name, kind, values in families:
            self.assertNotEqual(kind, "unknown", name)
            for sample, labels, value in values:
                key = (sample, tuple(sorted(labels.items())))
                self.assertNotIn(key, samples)
                samples[key] = value
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        self.assertEqual(len(samples), len(lines), "a line was not read")
        # The parser drops _total from a counter's family name.
        names = {name + "_total" if kind == "counter" else name for name, kind, _ in families}
        self.assertEqual(names, documented())

        def value(name, **labels):
            return samples[(name, tuple(sorted(labels.items())))]

        self.assertEqual(value("kvrm_requests_total", api="completions"), 2)
        self.assertEqual(value("kvrm_output_tokens_total"), 16)
        self.assertEqual(value("kvrm_choices_finished_total", reason="length"), 2)
        self.assertEqual(value("vllm:num_requests_running", model_name="random"), 0)
        for name, count in (("kvrm_time_to_first_token_seconds", 2), ("kvrm_request_seconds", 2),
                            ("kvrm_queue_seconds", 2), ("kvrm_prefill_seconds", 2),
                            ("kvrm_inter_token_seconds", 14),
                            ("kvrm_request_longest_gap_seconds", 2)):
            self.assertEqual(value(name + "_count"), count, name)
            bounds = [dict(labels)["le"] for sample, labels in samples
                      if sample == name + "_bucket"]
            self.assertEqual(min(map(float, bounds)), 0.0005, name)
            self.assertEqual(value(name + "_bucket", le="+Inf"), count)
            values = [samples[(name + "_bucket", (("le", bound),))]
                      for bound in sorted(bounds, key=float)]
            self.assertEqual(values, sorted(values), "buckets add up")
        steps = value("kvrm_steps_total")
        for phase in ("plan", "edit_commit", "move", "run", "sample", "output", "all"):
            self.assertEqual(value("kvrm_step_phase_seconds_count", phase=phase), steps)

    def ask(self, url, **body):
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60)

    def values(self, url):
        """The sum of each name's samples, but for what a histogram has beside its count."""
        sums = {}
        for line in urllib.request.urlopen(url + "/metrics", timeout=60).read().decode().split("\n"):
            series, _, value = line.rpartition(" ")
            name = series.split("{")[0].removesuffix("_count")
            if series and not line.startswith("#") and not name.endswith(("_bucket", "_sum")):
                sums[name] = sums.get(name, 0) + float(value)
        return sums

    def test_EachNameMovesHereOrInTheServersOwnTest(self):
        process = start("serve", "-m", self.model, "--port", "0", "--threads", "1", "--slots", "4",
                        "--max-itl-ms", "20", "--kv-keep", "0")
        try:
            url = self.wait_for_url(process)
            seen = [self.values(url)]
            for _ in range(2):
                self.ask(url, prompt="the quick brown fox " * 4, n=2, max_tokens=40,
                         ignore_eos=True).read()
                seen.append(self.values(url))
            for first in range(8):  # more pages than the pool begins with
                self.ask(url, prompt=[3 + (first * 31 + i) % 250 for i in range(230)],
                         max_tokens=1).read()
            seen.append(self.values(url))
            deadline = time.monotonic() + 60
            while not seen[-1]["kvrm_gaps_over_budget_total"] and time.monotonic() < deadline:
                stream = self.ask(url, prompt="abc", max_tokens=200, ignore_eos=True, stream=True)
                stream.readline()
                process.send_signal(signal.SIGSTOP)  # in the middle of it, or it was too fast
                time.sleep(0.1)
                process.send_signal(signal.SIGCONT)
                stream.read()
                seen.append(self.values(url))
            # A second without a request, then the pool is tidied.
            while not seen[-1]["kvrm_kv_superblocks_given_back_total"]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
                seen.append(self.values(url))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        moved = {name for name in seen[0] if len({values[name] for values in seen}) > 1}
        elsewhere = (ROOT / "src" / "server" / "metrics_test.cc").read_text()
        still = sorted(name for name in documented() - moved if name not in elsewhere)
        self.assertEqual(still, [], "these do not move")


if __name__ == "__main__":
    sys.exit(main())
