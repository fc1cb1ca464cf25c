"""Records from the command line, on a small random model. More cases of suite Cli."""

import http.client
import json
import re
import signal

from program import GREEDY, WithRandomModel, json_lines, main, run, start


class Cli(WithRandomModel):
    def recorded(self, name):
        record = self.path(name)
        result = self.generate("-p", "abc", "-p", "hello there", "-n", "30", *GREEDY, "--record",
                               record, "-t", "2")
        self.assert_ok(result)
        return record, json_lines(result)

    def replay(self, record, *words):
        return run("record", "replay", record, "-m", self.model, *words)

    def test_ARecordReplaysOnOtherThreadsAndKernels(self):
        record, lines = self.recorded("run.kvrec")
        for words in (("-t", "1"), ("-t", "3", "--simd", "portable")):
            result = self.replay(record, *words, "--json")
            self.assert_ok(result)
            (report,) = json_lines(result)
            self.assertTrue(report["same"])
            self.assertTrue(report["closed"])
            self.assertEqual(report["requests"], 2)
            self.assertEqual(report["tokens"], sum(len(line["tokens"]) for line in lines))
        self.assertIn(b"all as recorded", self.replay(record).stdout)

    def test_AFlippedByteOfARecordIsReportedWithItsStep(self):
        record, _ = self.recorded("flipped.kvrec")
        data = bytearray(record.read_bytes())
        data[len(data) // 2] ^= 4
        record.write_bytes(data)
        for command in ("show", "replay"):
            words = ("-m", self.model) if command == "replay" else ()
            result = run("record", command, record, *words)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr.decode(), r"entry \d+ at offset \d+, in step \d+: ")

    def test_ShowPrintsTokenIdsOnlyWhenAsked(self):
        record, lines = self.recorded("shown.kvrec")
        (summary,) = json_lines(run("record", "show", record, "--json"))
        self.assertEqual(summary["requests"], 2)
        self.assertEqual(summary["prompt_tokens"],
                         sum(len(line["prompt_tokens"]) for line in lines))
        self.assertEqual(summary["bytes"], record.stat().st_size)
        prompt = f"prompt [{' '.join(map(str, lines[0]['prompt_tokens']))}]"
        entries = run("record", "show", record, "--entries").stdout.decode()
        self.assertIn("commit", entries)
        self.assertNotIn(prompt, entries)
        self.assertIn(prompt, run("record", "show", record, "--tokens").stdout.decode())

    def test_ARecordOfAnotherModelIsRefused(self):
        record, _ = self.recorded("other.kvrec")
        other = self.path("other.gguf", self.model.read_bytes() + b"x")
        self.assert_fails(run("record", "replay", record, "-m", other), 1,
                          "is not the recorded one")
        self.assert_fails(run("record", "replay", self.model), 1, "record header: magic")
        self.assert_fails(run("record", "show"), 1, "FILE.kvrec")
        self.assert_fails(self.generate("-p", "x", "--record", "/no/such/folder/x.kvrec"), 1,
                          "--record /no/such/folder/x.kvrec: cannot be written")

    def test_AServersRecordReplays(self):
        record = self.path("served.kvrec")
        server = start("serve", "-m", self.model, "--port", "0", "--record", record)
        try:
            url = None
            while url is None:
                line = server.stderr.readline().decode()
                self.assertTrue(line, "the server ended")
                url = re.search(r"serving on http://([\d.]+):(\d+)", line)
            asked = []
            for prompt in ("abc", "abc, and then", "something else"):
                connection = http.client.HTTPConnection(url[1], int(url[2]), timeout=60)
                connection.request("POST", "/v1/completions",
                                   json.dumps({"prompt": prompt, "max_tokens": 12, "seed": 3}),
                                   {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
                asked.append(answer["usage"]["completion_tokens"])
                connection.close()
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)
        self.assertEqual(server.returncode, 0)
        result = self.replay(record, "-t", "1", "--json")
        self.assert_ok(result)
        (report,) = json_lines(result)
        self.assertTrue(report["same"])
        self.assertTrue(report["closed"])
        self.assertEqual(report["tokens"], sum(asked))


if __name__ == "__main__":
    main()
