"""What docs/switching.md shows can be run: its commands start, its requests are answered."""

import json
import shlex
import signal
import urllib.request

from program import ROOT, WithRandomModel, main, run, start

PAGE = ROOT / "docs" / "switching.md"


def shell_lines(beginning):
    """The words of each line that begins so, of the page's shell blocks."""
    lines, inside = [], False
    for line in PAGE.read_text().splitlines():
        if line.startswith("```"):
            inside = line == "```sh"
        elif inside and line.startswith(beginning):
            lines.append(shlex.split(line)[1:])
    return lines


class Switching(WithRandomModel):

    def here(self, words):
        """The command of a line with files of this test in place of those it names."""
        files = {"model.gguf": self.model, "./model": self.model,
                 "keys.txt": self.path("keys.txt", b"sk-one\n"),
                 "chat.jinja": self.path("chat.jinja", b"{{ messages[0].content }}")}
        return [str(files.get(word, word)) for word in words]

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_EachCommandOfThePageSaysItsSettings(self):
        commands = shell_lines("kvrm serve ")
        self.assertGreaterEqual(len(commands), 10)
        for words in commands:
            result = run(*self.here(words), "--print-config")
            self.assertEqual(result.returncode, 0, f"{words}: {result.stderr.decode()}")

    def test_EachCommandOfThePageServes(self):
        for words in shell_lines("kvrm serve "):
            process = start(*self.here(words), "--port", "0", "--ctx", "128", "--kv-bytes", "8MiB")
            self.wait_for_url(process)
            self.stop(process)

    def test_EachRequestOfThePageIsAnswered(self):
        requests = shell_lines("curl ")
        self.assertGreaterEqual(len(requests), 7)
        process = start("serve", "-m", self.model, "--port", "0", "--chat-template", "chatml",
                        "-a", "my-model", "--strict-model")
        url = self.wait_for_url(process)
        for target, header, name_and_value, data, body in requests:
            self.assertEqual((header, data), ("-H", "-d"))
            path = target.removeprefix("http://127.0.0.1:8080")
            name, value = name_and_value.split(": ")
            request = urllib.request.Request(url + path, body.encode(), {name: value})
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read().decode()
                self.assertEqual(response.status, 200)
            if json.loads(body).get("stream"):
                self.assertIn("data: ", text)
                self.assertNotIn('"error"', text)
            else:
                json.loads(text)
        self.stop(process)


if __name__ == "__main__":
    main()
