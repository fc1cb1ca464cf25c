"""tools/junit-counts on each outcome that ctest knows."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "junit-counts"


def count(cases):
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(f"<testsuite>{cases}</testsuite>")
        file.flush()
        return subprocess.run([sys.executable, SCRIPT, file.name], check=True, capture_output=True,
                              text=True)


class JunitCountsTest(unittest.TestCase):
    def test_each_outcome_is_counted_once(self):
        result = count('<testcase name="a" status="run"/>'
                       '<testcase name="b" status="fail"><failure message=""/></testcase>'
                       '<testcase name="c" status="notrun">'
                       '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
                       '<testcase name="d" status="disabled"/>')
        self.assertEqual(result.stdout, "1 1 2\n")
        self.assertEqual(result.stderr, "failed: b\nskipped: c\nskipped: d\n")

    def test_absent_program_is_a_failure(self):
        result = count('<testcase name="gone" status="notrun">'
                       '<skipped message="Unable to find executable: /gone"/></testcase>')
        self.assertEqual(result.stdout, "0 1 0\n")


if __name__ == "__main__":
    unittest.main()
