"""What the built server says in its log, and whom it serves what. More cases of suite Cli."""

import json
import resource
import signal
import subprocess
import unittest
import urllib.error
import urllib.request

from program import PROGRAM, WithRandomModel, environment, main, start

PATIENCE = 60  # seconds
MIB = 1 << 20


def start_within(most_bytes, *words):
    """The program with a bound on its address space, beyond which the system refuses memory."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    return subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                            preexec_fn=limit)


def says_its_version(most_bytes):
    process = start_within(most_bytes, "--version")
    process.communicate(timeout=PATIENCE)
    return process.returncode == 0


def least_mib(most):
    """What the program needs to say its version; None: more than `most`."""
    if not says_its_version(most * MIB):
        return None
    return next(mib for mib in range(8, most + 4, 4) if says_its_version(mib * MIB))


class Cli(WithRandomModel):
    def serve(self, *words):
        process = start("serve", "-m", self.model, "--port", "0", "-t", "1", *words)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        process.wait(PATIENCE)
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()

    def ask(self, url, body, **headers):
        request = urllib.request.Request(
            url + "/v1/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def test_AnApiKeyFindsOnlyWhatItsOwnPromptsLeft(self):
        keys = self.path("two-keys.txt", b"sk-one name=one\nsk-two name=two\n")
        url = self.wait_for_url(self.serve("--api-key-file", keys))
        body = {"prompt": "a prompt of several pages " * 4, "max_tokens": 1, "temperature": 0}

        def cached(key):
            usage = self.ask(url, body, Authorization=f"Bearer {key}")["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual(cached("sk-one"), 0)
        self.assertEqual(cached("sk-two"), 0, "what the other key's prompt left is not told")
        self.assertGreater(cached("sk-one"), 0)
        self.assertGreater(cached("sk-two"), 0)

    def test_AJsonLogHoldsObjectsAlone(self):
        process = self.serve("--log-format", "json")
        said = []
        for line in process.stderr:
            said.append(json.loads(line))
            if said[-1].get("message", "").startswith("serving on "):
                break
        url = said[-1]["message"].split()[-1]
        self.ask(url, {"prompt": "abc", "max_tokens": 2, "unknown_field": 1})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.ask(url, {"prompt": "abc", "n": 99})
        refused.exception.close()
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line) for line in process.stderr]
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual([line["event"] for line in said], ["message"] * len(said))
        self.assertEqual([(line["event"], line.get("status")) for line in rest],
                         [("message", None), ("request", 200), ("request", 400)])
        for line in said + rest:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT[\d:.]+Z$")

    def test_AnErrorThatEndsTheServerIsInItsJsonLog(self):
        first = self.wait_for_url(self.serve())
        port = first.rsplit(":", 1)[1]
        process = start("serve", "-m", self.model, "--port", port, "--log-format", "json")
        _, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1)
        (line,) = errors.splitlines()
        self.assertIn(f"port {port}", json.loads(line)["message"])

    def test_MemoryThatTheSystemRefusesAtLoadIsAnErrorInOneLine(self):
        least = least_mib(most=1000)
        if least is None:
            raise unittest.SkipTest("a sanitizer maps terabytes")
        refused = served = 0
        for mib in range(least, least + 600, 6):  # mappings, tables, threads: each is refused once
            process = start_within(mib * MIB, "serve", "-m", self.model, "--port", "0", "-t", "2",
                                   "--kv-bytes", "64MiB")
            self.addCleanup(self.end, process)
            said = []
            for line in process.stderr:
                said.append(line.decode())
                if "serving on " in said[-1]:
                    break
            if "serving on " in said[-1]:
                answer = self.ask(said[-1].split()[-1], {"prompt": "abc", "max_tokens": 2})
                self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length"))
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(PATIENCE), 0)
                served += 1
            else:
                self.assertEqual(process.wait(PATIENCE), 1, said)
                self.assertRegex(said[-1], r"^kvrm( serve)?: \S")
                refused += 1
            if served == 3:
                break
        self.assertEqual(served, 3)
        self.assertGreater(refused, 5)

    def test_AReaderOfTheLogThatGoesAwayCostsNoAnswer(self):
        process = self.serve()
        url = self.wait_for_url(process)
        process.stderr.close()
        for _ in range(3):
            answer = self.ask(url, {"prompt": "abc", "max_tokens": 3, "ignore_eos": True})
            self.assertEqual(answer["usage"]["completion_tokens"], 3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 0)


if __name__ == "__main__":
    main()
