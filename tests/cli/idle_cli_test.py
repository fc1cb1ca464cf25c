"""What a server takes while nobody asks it for anything. More cases of suite Cli."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import time

from program import WithRandomModel, main, start

CONNECTIONS = 1000
KEEP = 1 << 20


class Cli(WithRandomModel):
    def serve(self, *words):
        server = start("serve", "-m", self.model, "--port", "0", "-t", "2", *words)
        self.addCleanup(self.stop, server)
        host, port = self.wait_for_url(server).removeprefix("http://").split(":")
        return server, host, int(port)

    def stop(self, server):
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)

    def resident_bytes(self, pid):
        """Resident and swapped, as the system counts."""
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return sum(int(value) * 1024 for value in re.findall(r"Vm(?:RSS|Swap):\s+(\d+) kB", status))

    def cpu_seconds(self, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, connection, method, path, body=None):
        connection.request(method, path, body and json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        self.assertEqual(answer.status, 200, text)
        return text

    def test_AThousandIdleConnectionsTakeLessThanOneHundredthOfACore(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < CONNECTIONS + 100:
            self.skipTest(f"this process may open {hard} files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + 100, hard))
        server, host, port = self.serve()
        idle = [socket.create_connection((host, port), timeout=60) for _ in range(CONNECTIONS)]
        for connection in idle:
            self.addCleanup(connection.close)
        asking = http.client.HTTPConnection(host, port, timeout=60)
        self.addCleanup(asking.close)
        self.ask(asking, "POST", "/v1/completions", {"prompt": "abc", "max_tokens": 5})
        time.sleep(2)  # what the answer left to tidy
        before, began = self.cpu_seconds(server.pid), time.monotonic()
        time.sleep(5)
        used = self.cpu_seconds(server.pid) - before
        self.assertLess(used, 0.01 * (time.monotonic() - began))
        self.ask(asking, "POST", "/v1/completions", {"prompt": "abc", "max_tokens": 5})

    def test_FiveSecondsAfterTheLastRequestThePoolsMemoryIsBack(self):
        server, host, port = self.serve("--kv", "f32", "--kv-bytes", "48MiB", "--kv-keep", KEEP,
                                        "--slots", "8")

        def fill(worker):
            connection = http.client.HTTPConnection(host, port, timeout=60)
            numbers = random.Random(worker)
            for _ in range(52):
                prompt = [numbers.randrange(3, 259) for _ in range(230)]
                self.ask(connection, "POST", "/v1/completions",
                         {"prompt": prompt, "max_tokens": 1})
            connection.close()

        asking = http.client.HTTPConnection(host, port, timeout=60)
        self.addCleanup(asking.close)
        self.ask(asking, "POST", "/v1/completions", {"prompt": "abc", "max_tokens": 5})
        before = self.resident_bytes(server.pid)
        with concurrent.futures.ThreadPoolExecutor(8) as workers:
            list(workers.map(fill, range(8)))
        metrics = self.ask(asking, "GET", "/metrics")
        reserved = float(re.search(r"^kvrm_kv_reserved_bytes (\S+)$", metrics, re.M)[1])
        self.assertGreaterEqual(reserved, 0.8 * (48 << 20))
        full = self.resident_bytes(server.pid)
        self.assertGreaterEqual(full, before + (36 << 20))
        deadline = time.monotonic() + 5
        limit = before + KEEP + (4 << 20)
        while self.resident_bytes(server.pid) > limit and time.monotonic() < deadline:
            time.sleep(0.25)
        self.assertLessEqual(self.resident_bytes(server.pid), limit)


if __name__ == "__main__":
    main()
