#!/usr/bin/env python3
"""What a server takes while idle, on a real model: after one request, and after the KV pool was filled to
80 %; compares with the goals. Prints one line a goal; exit code 0 only when all are met.

usage: tools/idle.py PROGRAM [-m MODEL]       PROGRAM: a built kvrm
"""

import http.client
import json
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import time

KV_MIB, KEEP_MIB, BESIDE_MIB = 256, 32, 64
CONNECTIONS = 1000


class Server:
    def __init__(self, program, words):
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "--kv-bytes", f"{KV_MIB}MiB", "--kv-keep",
             f"{KEEP_MIB}MiB", *words], stderr=subprocess.PIPE, text=True)
        self.weights_mib = None
        for line in self.process.stderr:
            if found := re.search(r"([\d.]+) MiB of weights", line):
                self.weights_mib = float(found[1])
            if found := re.search(r"serving on http://([\d.]+):(\d+)", line):
                self.address = found[1], int(found[2])
                break
        self.connection = http.client.HTTPConnection(*self.address, timeout=600)

    def ask(self, path, body=None):
        """The answer and its seconds."""
        began = time.monotonic()
        self.connection.request("POST" if body else "GET", path, body and json.dumps(body),
                                {"Content-Type": "application/json"})
        answer = self.connection.getresponse().read().decode()
        return answer, time.monotonic() - began

    def first_token_seconds(self, numbers, tokens=16):
        prompt = [numbers.randrange(100, 20_000) for _ in range(tokens)]
        return self.ask("/v1/completions", {"prompt": prompt, "max_tokens": 1})[1]

    def reserved_share(self):
        metrics, _ = self.ask("/metrics")
        return float(re.search(r"^kvrm_kv_reserved_bytes (\S+)$", metrics, re.M)[1]) / (KV_MIB << 20)

    def resident_mib(self):
        """Resident and swapped."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return sum(map(int, re.findall(r"Vm(?:RSS|Swap):\s+(\d+) kB", status))) / 1024

    def cpu_percent(self, seconds):
        """Of a core, over the next `seconds`."""
        before, began = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return 100 * (self.cpu_seconds() - before) / (time.monotonic() - began)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    server = Server(sys.argv[1], sys.argv[2:])
    met = []

    def goal(text, value, limit):
        met.append(value <= limit)
        print(f"{'met   ' if met[-1] else 'MISSED'}  {text}: {value:.4g} (goal: at most {limit:.4g})")

    numbers = random.Random(1)
    server.first_token_seconds(numbers)
    time.sleep(3)  # its memory goes back, and stays there
    goal("% of a core 3 s after a lone request", server.cpu_percent(5), 1)
    warm = statistics.median(server.first_token_seconds(numbers) for _ in range(9))
    while server.reserved_share() < 0.8:
        server.first_token_seconds(numbers, tokens=230)
    print(f"        pool {100 * server.reserved_share():.0f} % full, {server.resident_mib():.1f} MiB")
    time.sleep(5)
    goal("MiB resident 5 s after the last request", server.resident_mib(),
         server.weights_mib + BESIDE_MIB + KEEP_MIB)
    goal("next first token, times a warm one", server.first_token_seconds(numbers) / warm, 2)
    idle = [socket.create_connection(server.address, timeout=60) for _ in range(CONNECTIONS - 1)]
    time.sleep(2)
    goal(f"% of a core with {len(idle) + 1} idle connections", server.cpu_percent(10), 1)
    server.process.terminate()
    server.process.wait()
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
