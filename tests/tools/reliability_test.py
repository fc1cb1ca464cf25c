"""docs/reliability.md against the sources: each test that it names exists, each report is tried."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
SUITE = re.compile(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)")
SCRIPT = re.compile(r"^class (\w+)|^    def test_(\w+)", re.MULTILINE)


def tests_of(path):
    return SUITE.findall(path.read_text())


def script_tests_of(path):
    """Those of a Python file, by the names that ctest gives them."""
    suite = None
    for name, test in SCRIPT.findall(path.read_text()):
        suite = name or suite
        if test:
            yield suite, test


def all_tests():
    sources = {test for folder in ("src", "tests", "apps")
               for path in (ROOT / folder).rglob("*_test.cc") for test in tests_of(path)}
    scripts = {test for path in (ROOT / "tests" / "cli").glob("*_test.py")
               for test in script_tests_of(path)}
    return sources | scripts


class Reliability(unittest.TestCase):
    def test_EachFaultsTestExists(self):
        named = re.findall(r"`(\w+)\.(\w+)`", PAGE)
        self.assertGreater(len(named), 15)
        for test in named:
            self.assertIn(test, all_tests())

    def test_EachReportIsTriedWhereThePageSays(self):
        """A file named beside a number has a suite of that number, and each such file is named."""
        named = {(number, name)
                 for number, files in re.findall(r"^\| (B\d+) \|.*\| (.*) \|$", PAGE, re.MULTILINE)
                 for name in re.findall(r"`(.*?)`", files)}
        tried = {(suite[:4], str(path.relative_to(ROOT)))
                 for folder in ("src", "tests", "apps")
                 for path in (ROOT / folder).rglob("*_test.cc") for suite, _ in tests_of(path)
                 if re.match(r"B\d{3}", suite)}
        self.assertEqual(sorted(named - tried), [], "named, but no suite there has the number")
        self.assertEqual(sorted(tried - named), [], "tried there, but the page does not say so")
        self.assertEqual(len({number for number, _ in named}), 58)


if __name__ == "__main__":
    unittest.main()
