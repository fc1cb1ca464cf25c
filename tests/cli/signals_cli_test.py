"""The built server and real signals: SIGTERM while a request waits, is read, is answered. A queue
that is full, and what Retry-After then promises."""

import http.client
import json
import pathlib
import re
import signal
import subprocess
import time

from program import WRITE_RANDOM_MODEL, WithRandomModel, main, start

CONTEXT = 65536
LONG = 60_000  # tokens of an answer that nobody waits for
PROMPT = 4000  # tokens: more than a hundred steps
SHORT = 500
PATIENCE = 120  # seconds, of anything that must come
MOST_PROMPTS = 128  # of one request
STATES = ("queue", "prefill", "decode")


class Stream:
    """One streamed answer, read event by event."""

    def __init__(self, server, **body):
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
        self.connection.request("POST", "/v1/completions", json.dumps(dict(body, stream=True)),
                                {"Content-Type": "application/json"})
        self.answer = None

    def head(self):
        if self.answer is None:
            self.answer = self.connection.getresponse()
        return self.answer

    def event(self):
        """The next event: an object, "[DONE]", or None where the connection ended."""
        while True:
            try:
                line = self.head().readline()
            except (http.client.HTTPException, ConnectionError):
                return None
            if not line:
                return None
            if line.startswith(b"data: "):
                text = line[len(b"data: "):].strip()
                return "[DONE]" if text == b"[DONE]" else json.loads(text)

    def rest(self):
        events = []
        while (event := self.event()) is not None:
            events.append(event)
            if event == "[DONE]":
                break
        return events

    def close(self):
        self.connection.close()
        if self.answer is not None:
            self.answer.close()


class Server:
    """`kvrm serve` with one slot, stopped at the end whatever happened."""

    def __init__(self, test, *words):
        self.process = start("serve", "-m", test.long_model, "--port", "0", "-t", "1", "--slots",
                             "1", "--ctx", CONTEXT, "--kv-bytes", "64MiB", "--max-itl-ms", "0",
                             "--chunk", "32", "--prefix-cache", "off", *words)
        self.test = test
        self.opened = []
        test.addCleanup(self.stop)
        host, port = test.wait_for_url(self.process).removeprefix("http://").split(":")
        self.host, self.port = host, int(port)
        # Nobody reads the log from here on: it must not fill the pipe.
        self.sink = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def stop(self):
        self.process.kill()
        for stream in self.opened:
            stream.close()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait(PATIENCE)
        self.sink.wait(PATIENCE)

    def stream(self, **body):
        self.opened.append(Stream(self, **body))
        return self.opened[-1]

    def ask(self, method, path, body=None):
        """Status, headers and text of an answer in one piece."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body and json.dumps(body),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2]
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])

    def until(self, what, *values):
        deadline = time.monotonic() + PATIENCE
        while what() not in values:
            self.test.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def until_draining(self):
        def ready():
            try:
                return self.ask("GET", "/ready")[0]
            except (http.client.RemoteDisconnected, ConnectionError):
                return None  # the signal came before the question: closed as one that asked nothing
        self.until(ready, 503)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def exit_code(self):
        return self.process.wait(PATIENCE)


class SignalCli(WithRandomModel):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long_model = pathlib.Path(cls.folder.name) / "long.gguf"
        subprocess.run([WRITE_RANDOM_MODEL, cls.long_model, str(CONTEXT)], check=True)

    def request_in(self, state, server, longest):
        """A stream that the server has in `state`; what it makes has `longest` tokens at most."""
        body = {"prompt": "abc", "max_tokens": longest, "temperature": 0, "ignore_eos": True}
        if state == "queue":
            holder = server.stream(**dict(body, max_tokens=LONG))
            self.assertIn("choices", holder.event())
            stream = server.stream(**body)
            server.until(lambda: server.metric("kvrm_queued"), 1)
            self.holder = holder
        elif state == "prefill":
            stream = server.stream(**dict(body, prompt=[5] * PROMPT, return_progress=True,
                                          max_tokens=min(longest, CONTEXT - PROMPT)))
            self.assert_in_its_prompt(stream.event())
        else:
            stream = server.stream(**body)
            self.assertIn("choices", stream.event())
        return stream

    def assert_in_its_prompt(self, event):
        progress = event["prompt_progress"]
        self.assertLess(progress["processed"], progress["total"])

    def assert_whole(self, events, reason="length"):
        self.assertEqual(events[-1], "[DONE]")
        reasons = [choice["finish_reason"] for event in events[:-1]
                   for choice in event.get("choices", [])]
        self.assertEqual([each for each in reasons if each], [reason])

    def assert_ended_by_shutdown(self, events):
        self.assertEqual(events[-1]["error"]["code"], "shutting_down")

    # ---- the first signal
    def signal_lets_it_end(self, state):
        server = Server(self, "--drain-seconds", "3600")
        stream = self.request_in(state, server, longest=SHORT)
        server.signal()
        if state == "queue":
            self.assert_drains(server)
            self.holder.close()  # its client leaves, and who waited is served
        self.assert_whole(stream.rest())
        self.assertEqual(server.exit_code(), 0)

    def assert_drains(self, server):
        """Who holds the slot does so until we let go: there is time to look."""
        server.until_draining()
        self.assertEqual(server.metric("kvrm_queued"), 1)
        new = {"prompt": "new", "max_tokens": 1}
        status, headers, text = server.ask("POST", "/v1/completions", new)
        self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "shutting_down"))
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(server.ask("GET", "/live")[0], 200)

    def test_SigtermLetsAWaitingRequestHaveItsAnswer(self):
        self.signal_lets_it_end("queue")

    def test_SigtermLetsAPromptBeReadAndAnswered(self):
        self.signal_lets_it_end("prefill")

    def test_SigtermLetsAnAnswerEnd(self):
        self.signal_lets_it_end("decode")

    # ---- the time to drain is over
    def deadline_ends_it(self, state):
        server = Server(self, "--drain-seconds", "1")
        stream = self.request_in(state, server, longest=LONG)
        server.signal()
        events = stream.rest()
        if stream.head().status == 200:  # as soon as something was sent, a comment for one
            self.assertNotIn("[DONE]", events)
            self.assert_ended_by_shutdown(events)
        else:
            self.assertEqual((state, stream.head().status), ("queue", 503))
        if state == "queue":
            self.assert_ended_by_shutdown(self.holder.rest())
        self.assertEqual(server.exit_code(), 0)

    def test_TheDrainDeadlineRefusesAWaitingRequest(self):
        self.deadline_ends_it("queue")

    def test_TheDrainDeadlineEndsAPromptWithAReason(self):
        self.deadline_ends_it("prefill")

    def test_TheDrainDeadlineEndsAnAnswerWithAReason(self):
        self.deadline_ends_it("decode")

    # ---- the second signal
    def second_signal_ends_all(self, state, first, second):
        server = Server(self, "--drain-seconds", "3600")
        stream = self.request_in(state, server, longest=LONG)
        server.signal(first)
        server.until_draining()
        server.signal(second)
        self.assertEqual(server.exit_code(), 1)
        self.assertNotIn("[DONE]", stream.rest())

    def test_ASecondSignalEndsAWaitingRequestAtOnce(self):
        self.second_signal_ends_all("queue", signal.SIGTERM, signal.SIGTERM)

    def test_ASecondSignalEndsAPromptAtOnce(self):
        self.second_signal_ends_all("prefill", signal.SIGINT, signal.SIGTERM)

    def test_ASecondSignalEndsAnAnswerAtOnce(self):
        self.second_signal_ends_all("decode", signal.SIGTERM, signal.SIGINT)

    # ---- a full queue
    def retry_after(self, server):
        """Requests of many prompts each until one is refused: what that one is told."""
        counts = ['kvrm_requests_total{api="completions"}',
                  'kvrm_requests_refused_total{reason="queue_full"}']
        deadline = time.monotonic() + PATIENCE
        while True:
            self.assertLess(time.monotonic(), deadline, "the queue is never full")
            begun, refused = map(server.metric, counts)
            stream = server.stream(prompt=[[5]] * MOST_PROMPTS, max_tokens=16, ignore_eos=True)
            server.until(lambda: sum(map(server.metric, counts)) > begun + refused, True)
            if server.metric(counts[1]) > refused:
                answer = stream.head()
                self.assertEqual(answer.status, 429)
                self.assertEqual(json.loads(answer.read())["error"]["code"], "queue_full")
                stream.close()
                return int(answer.headers["Retry-After"])

    def test_RetryAfterOfAFullQueueFollowsTheRateAndWhoObeysItIsServed(self):
        server = Server(self)
        holder = server.stream(prompt="abc", max_tokens=LONG, ignore_eos=True)
        self.assertIn("choices", holder.event())
        # While one answer holds the only slot nothing is served: the longest that is ever told.
        server.until(lambda: self.retry_after(server), 60)
        holder.close()  # from here on the queue moves
        server.until(lambda: self.retry_after(server) < 60, True)
        told = self.retry_after(server)
        self.assertGreaterEqual(told, 1)
        for _ in range(3):  # a client's usual patience; the first should do
            time.sleep(told)
            status, headers, text = server.ask("POST", "/v1/completions",
                                               {"prompt": "abc", "max_tokens": 1})
            if status == 200:
                break
            told = int(headers["Retry-After"])
        self.assertEqual(status, 200, text)


if __name__ == "__main__":
    main()
