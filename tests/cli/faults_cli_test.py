"""What the built server stands: disks that are full. More cases of suite Cli."""

import json
import resource
import signal
import subprocess
import time
import urllib.request

from program import PROGRAM, WithRandomModel, environment, json_lines, main, run

MOST_BYTES = 20_000


class Cli(WithRandomModel):
    def serve_with_small_files(self, *words):
        """The log is a file; none of its files may grow beyond MOST_BYTES."""
        log = self.path("log.txt", b"")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
        with log.open("ab") as out:
            server = subprocess.Popen(
                [PROGRAM, "serve", "-m", str(self.model), "--port", "0", "-t", "1", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out,
                env=environment(), preexec_fn=limit)
        self.addCleanup(server.wait, 60)
        self.addCleanup(server.kill)
        deadline = time.monotonic() + 60
        while b"serving on " not in log.read_bytes():
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(server.poll(), log.read_text())
            time.sleep(0.02)
        url = log.read_text().split("serving on ", 1)[1].split()[0]
        return server, url, log

    def test_FullDisksEndLogTraceAndRecordAndNoAnswer(self):
        trace, record = self.path("full.kvft"), self.path("full.kvrec")
        server, url, log = self.serve_with_small_files("--frame-trace", str(trace),
                                                       "--record", str(record))
        body = {"prompt": "abc", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        texts = set()
        for _ in range(150):
            request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                texts.add(json.loads(answer.read())["choices"][0]["text"])
        self.assertEqual(len(texts), 1)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(60), 0)
        for path in (trace, record, log):
            self.assertGreater(path.stat().st_size, MOST_BYTES - 5000, path.name)
            self.assertLessEqual(path.stat().st_size, MOST_BYTES, path.name)
        told = log.read_text()
        self.assertIn("full.kvft: the trace cannot be written: ", told)
        self.assertIn("full.kvrec", told)
        (summary,) = json_lines(run("inspect", trace, "--json"))
        self.assertIsNone(summary["damage"])


if __name__ == "__main__":
    main()
