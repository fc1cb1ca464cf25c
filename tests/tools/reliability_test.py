"""docs/reliability.md against the sources: each test that it names exists, each report is tried."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
SUITE = re.compile(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)")
REPORTS = re.findall(r"^\| (B\d+) \|[^|]*\| ([^|]*) \| ([^|]*) \|$", PAGE, re.MULTILINE)
# About the API and about operation, and those of the scheduler that clients see.
ABOUT_THE_SERVER = {"B021", "B023", "B034", "B036", "B038", "B039", "B040", "B041", "B042", "B044",
                    "B046", "B048", "B049", "B050", "B067", "B068", "B069", "B070", "B072", "B074"}
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

    def test_EachReportHasItsOutcome(self):
        self.assertEqual(len({number for number, _, _ in REPORTS}), 58)
        for number, outcome, _ in REPORTS:
            self.assertRegex(outcome, r"^(held|mended \([0-9a-f]{7,}\)|refused)(:| |$)", number)

    def test_EachReportIsTriedWhereThePageSays(self):
        """Beside a number stand all its tests, or all files that have a suite of that number."""
        named = {(number, name) for number, _, where in REPORTS
                 for name in re.findall(r"`(.*?)`", where)}
        tried = {(suite[:4], f"{suite}.{test}" if suite[:4] in ABOUT_THE_SERVER
                  else str(path.relative_to(ROOT)))
                 for folder in ("src", "tests", "apps")
                 for path in (ROOT / folder).rglob("*_test.cc") for suite, test in tests_of(path)
                 if re.match(r"B\d{3}", suite)}
        self.assertEqual(sorted(named - tried), [], "named, but there is no such test or suite")
        self.assertEqual(sorted(tried - named), [], "tried, but the page does not say so")


if __name__ == "__main__":
    unittest.main()
