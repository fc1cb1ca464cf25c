"""`kvrm batch` from outside: files in and out, Ctrl-C, kill and go on, usage."""

import json
import re
import signal
import time

from program import WithRandomModel, main, on_a_terminal, run, start


def request(number, max_tokens=4, **fields):
    body = {"prompt": f"p{number}", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    return json.dumps({"custom_id": f"r{number}", "method": "POST", "url": "/v1/completions",
                       "body": body | fields}) + "\n"


class BatchCli(WithRandomModel):
    def batch(self, *words, **options):
        return run("batch", "-m", self.model, *words, **options)

    def answers(self, path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    def test_AnswersEachLineAsGenerateWould(self):
        source = self.path("in.jsonl", "".join(request(i) for i in range(12)).encode() + b"bad\n")
        out = self.path("answers.jsonl")
        out.unlink(missing_ok=True)
        result = self.batch(source, out, "--alias", "name")
        self.assert_ok(result)
        self.assertIn(b"13 answered, 1 of them with an error", result.stderr)
        answers = {answer["custom_id"]: answer for answer in self.answers(out)}
        self.assertEqual(len(answers), 13)
        self.assertEqual(answers[None]["error"]["code"], "invalid_json")
        for i in range(12):
            body = answers[f"r{i}"]["response"]["body"]
            self.assertEqual(body["model"], "name")
            self.assertEqual(body["usage"]["completion_tokens"], 4)
        alone = self.generate("-p", "p3", "-n", "4", "--temp", "0", "--json", "--ignore-eos")
        self.assertEqual(answers["r3"]["response"]["body"]["choices"][0]["text"],
                         json.loads(alone.stdout)["text"])
        again = self.batch(source, out)
        self.assertIn(b"0 answered, 0 of them with an error; 13 were answered before", again.stderr)
        self.assertEqual(len(self.answers(out)), 13)

    def test_StoppedOrKilledItGoesOnWithTheSameCommand(self):
        count = 400
        source = self.path("long.jsonl", "".join(request(i, 60) for i in range(count)).encode())
        out = self.path("long_answers.jsonl")
        for number, expected in ((signal.SIGINT, 1), (signal.SIGKILL, -signal.SIGKILL)):
            had = out.read_text().count("\n") if out.exists() else 0
            process = start("batch", "-m", self.model, source, out)
            while process.poll() is None and (not out.exists() or
                                              out.read_text().count("\n") < had + 5):
                time.sleep(0.01)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, expected, said)
            self.assertLess(out.read_text().count("\n"), count)
        self.assert_ok(self.batch(source, out))
        self.assertEqual(sorted(answer["custom_id"] for answer in self.answers(out)),
                         sorted(f"r{i}" for i in range(count)))

    def test_ATerminalSeesHowMuchIsAnswered(self):
        count = 150
        source = self.path("shown.jsonl", "".join(request(i, 20) for i in range(count)).encode())
        out = self.path("shown_answers.jsonl")
        shown = on_a_terminal("batch", "-m", self.model, source, out)
        bars = re.findall(r"\ranswering \[(#*)(\.*)\] +(\d+) %", shown)
        self.assertGreaterEqual(len(bars), 3, shown)
        self.assertEqual(int(bars[0][2]), 0, "what is read ahead is not answered")
        self.assertEqual(bars, sorted(bars, key=lambda bar: int(bar[2])))
        for filled, empty, percent in bars:  # both are rounded down, from the same share
            self.assertEqual(len(filled + empty), 30)
            self.assertGreaterEqual(len(filled), int(percent) * 30 // 100)
            self.assertLessEqual(len(filled), (int(percent) + 1) * 30 // 100)
        # The bar is wiped, and what was done stands in its place.
        self.assertRegex(shown, rf"\r\x1b\[K{count} answered, 0 of them with an error")
        self.assertEqual(len(self.answers(out)), count)
        piped = self.batch(source, self.path("piped_answers.jsonl"))
        self.assert_ok(piped)
        self.assertNotIn(b"answering", piped.stderr)

    def test_ABatchRunsWithoutAGapBudgetUnlessItIsAskedForOne(self):
        source = self.path("budget.jsonl", request(1).encode())
        for words, budget in (((), b"; no gap budget"), (("--max-itl-ms", "40"), b"; gap budget 40 ms")):
            out = self.path("budget_answers.jsonl")
            out.unlink(missing_ok=True)
            result = self.batch(source, out, *words)
            self.assert_ok(result)
            self.assertIn(budget, result.stderr)

    def test_FilesAndUsageAreCheckedBeforeTheModelIsLoaded(self):
        source = self.path("one.jsonl", request(1).encode())
        notes = self.path("notes.txt", b"not an answer\n")
        self.assert_fails(run("batch", source), 2, "IN.jsonl OUT.jsonl")
        self.assert_fails(run("batch", source, "a", "b"), 2, "unexpected 'b'")
        self.assert_fails(run("batch", self.path("absent"), self.path("o")), 1, "absent")
        self.assert_fails(run("batch", source, notes), 1, "notes.txt", "line 1")
        self.assertEqual(notes.read_bytes(), b"not an answer\n")
        self.assert_fails(run("batch", source, source), 1, "one.jsonl")


if __name__ == "__main__":
    main()
