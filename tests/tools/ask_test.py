"""tools/ask.py against a server that says what each test wants it to say."""

import http.server
import io
import json
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import ask  # noqa: E402


def chunk(text=None, finish=None, usage=None):
    choices = [] if usage else [{"index": 0, "delta": {"content": text} if text else {},
                                 "finish_reason": finish}]
    return "data: " + json.dumps({"choices": choices, "usage": usage}) + "\n\n"


WHOLE = (chunk("Par") + ": a comment\n\n" + chunk("is ☕") + chunk(finish="stop") +
         chunk(usage={"prompt_tokens": 9, "completion_tokens": 3}) + "data: [DONE]\n\n")


class FakeServer(http.server.BaseHTTPRequestHandler):
    status, body, seen = 200, WHOLE, None

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        FakeServer.seen = (self.path, json.loads(self.rfile.read(length)))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body.encode())

    def log_message(self, *_):
        pass


class AskTest(unittest.TestCase):
    def setUp(self):
        self.server = http.server.HTTPServer(("127.0.0.1", 0), FakeServer)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.out, self.log = io.StringIO(), io.StringIO()

    def tearDown(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def ask(self, status, body):
        FakeServer.status, FakeServer.body = status, body
        ask.ask("127.0.0.1", self.server.server_address[1], "Capital of France?", 16, self.out,
                self.log)

    def test_whole_answer_is_printed_with_its_speed(self):
        self.ask(200, WHOLE)
        self.assertEqual(self.out.getvalue(), "Paris ☕\n")
        self.assertRegex(self.log.getvalue(), r"^3 tokens, first text after \d+ ms, then "
                                              r"[\d.]+ tokens/s, prompt of 9 tokens\n$")
        path, body = FakeServer.seen
        self.assertEqual(path, "/v1/chat/completions")
        self.assertEqual(body["messages"][-1], {"role": "user", "content": "Capital of France?"})
        self.assertTrue(body["stream"] and body["stream_options"]["include_usage"])

    def test_cut_stream_is_an_error(self):
        with self.assertRaisesRegex(ask.BrokenAnswer, "without .DONE."):
            self.ask(200, WHOLE.replace("data: [DONE]\n\n", ""))

    def test_error_event_is_an_error(self):
        with self.assertRaisesRegex(ask.BrokenAnswer, "shutting down"):
            self.ask(200, chunk("Par") + 'data: {"error": {"message": "shutting down"}}\n\n')

    def test_refusal_shows_status_and_reason(self):
        with self.assertRaisesRegex(ask.BrokenAnswer, "HTTP 400: .*too long"):
            self.ask(400, '{"error": {"message": "too long"}}')

    def test_empty_answer_is_an_error(self):
        with self.assertRaisesRegex(ask.BrokenAnswer, "no text"):
            self.ask(200, chunk(finish="stop") + "data: [DONE]\n\n")

    def test_event_of_two_data_lines_is_joined(self):
        self.assertEqual(list(ask.events([b"data: a\n", b"data:b\r\n", b"\n"])), ["a\nb"])


if __name__ == "__main__":
    unittest.main()
