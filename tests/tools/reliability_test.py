"""docs/reliability.md against the sources: each test that it names exists, each report is tried."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
SUITE = re.compile(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)")


def tests_of(path):
    return SUITE.findall(path.read_text())


def all_tests():
    return {test for folder in ("src", "tests", "apps")
            for path in (ROOT / folder).rglob("*_test.cc") for test in tests_of(path)}


class Reliability(unittest.TestCase):
    def test_EachFaultsTestExists(self):
        named = re.findall(r"`(\w+)\.(\w+)`", PAGE)
        self.assertGreater(len(named), 15)
        for test in named:
            self.assertIn(test, all_tests())

    def test_EachReportIsTriedWhereThePageSays(self):
        listed = set()
        for number, files in re.findall(r"^\| (B\d+) \|.*\| (.*) \|$", PAGE, re.MULTILINE):
            listed.add(number)
            for name in re.findall(r"`(.*?)`", files):
                path = ROOT / name
                suites = {suite for suite, _ in tests_of(path)}
                found = any(suite.startswith(number) for suite in suites)
                self.assertTrue(found or number in path.read_text(), f"{number} in {name}")
        tried = {re.match(r"B\d+", suite).group() for suite, _ in all_tests()
                 if re.match(r"B\d{3}", suite)}
        self.assertGreater(len(listed), 50)
        self.assertLessEqual(listed, tried)


if __name__ == "__main__":
    unittest.main()
