"""What the CLI tests share: the built program, a random model file, skipping by exit code."""

import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("KVRM_PROGRAM", "")
WRITE_RANDOM_MODEL = os.environ.get("KVRM_WRITE_RANDOM_MODEL", "")
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
GREEDY = ("--temp", "0", "--json", "--ignore-eos")


def environment(**changes):
    """The caller's, but for what would change the options; changes given as None are removed."""
    result = {name: value for name, value in os.environ.items() if not name.startswith("KVRM_")}
    result.update(changes)
    return {name: value for name, value in result.items() if value is not None}


def run(*words, stdin="", timeout=240, **changes):
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    return subprocess.run([PROGRAM, *map(str, words)], input=data, capture_output=True,
                          timeout=timeout, env=environment(**changes))


def start(*words, **changes):
    return subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(**changes))


def on_a_terminal(*words):
    """What a run that succeeds shows on standard error when it is a terminal."""
    terminal, end = pty.openpty()
    with subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=end, env=environment()) as process:
        os.close(end)
        shown = b""
        try:
            while piece := os.read(terminal, 4096):
                shown += piece
        except OSError:  # how Linux says that the other end is closed
            pass
    os.close(terminal)
    if process.returncode != 0:
        raise AssertionError(f"exit code {process.returncode}: {shown!r}")
    return shown.decode()


def json_lines(result):
    return [json.loads(line) for line in result.stdout.decode().splitlines()]


class WithRandomModel(unittest.TestCase):
    """A folder of its own with `model`, a small random model of 256 tokens of context."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = pathlib.Path(cls.folder.name) / "random.gguf"
        subprocess.run([WRITE_RANDOM_MODEL, cls.model], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name, data=None):
        path = pathlib.Path(self.folder.name) / name
        if data is not None:
            path.write_bytes(data)
        return path

    def generate(self, *words, **options):
        return run("generate", "-m", self.model, *words, **options)

    def ids(self, text):
        result = run("tokenize", "--ids", "-m", self.model, stdin=text)
        self.assert_ok(result)
        return [int(word) for word in result.stdout.split()]

    def wait_for_url(self, process):
        for line in process.stderr:
            if b"serving on http://" in line:
                return line.decode().split("serving on ", 1)[1].split()[0]
        self.fail("the server ended before it served")

    def assert_ok(self, result):
        self.assertEqual(result.returncode, 0, result.stderr.decode())

    def assert_fails(self, result, code, *parts):
        """Exit code, and one line (behind the banner, if any) that says why."""
        lines = result.stderr.decode().splitlines()
        self.assertEqual(result.returncode, code, result.stderr.decode())
        errors = [line for line in lines if line.startswith("kvrm")]
        self.assertEqual(len(errors), 1, lines)
        self.assertIs(errors[0], lines[-1])
        self.assertLess(len(errors[0]), 1000)
        for part in parts:
            self.assertIn(part, errors[0])


def main():
    program = unittest.main(exit=False, verbosity=2)
    if not program.result.wasSuccessful():
        sys.exit(1)
    if program.result.testsRun == 0:
        sys.exit("no test was run")
    sys.exit(SKIPPED if len(program.result.skipped) == program.result.testsRun else 0)
