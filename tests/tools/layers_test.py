""".ci/layers on small trees, one broken rule each."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "layers"
LAYERS = "low:\nmid: low\nhigh: mid\n"


def check(files, layers=LAYERS):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in {".ci/layers.txt": layers, "src/base/b.h": "", "src/low/l.h": "",
                           "src/mid/m.h": "", "src/high/h.h": "", **files}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        result = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


class LayersTest(unittest.TestCase):
    def test_declared_layers_pass(self):
        text = '#include <vector>\n#include "base/b.h"\n#include "low/l.h"\n#include "mid/m.h"\n'
        self.assertEqual(check({"src/mid/m.cc": text}), (0, ""))

    def test_include_upwards_is_named_with_its_line(self):
        self.assertEqual(check({"src/low/l.cc": '\n#include "mid/m.h"\n'}),
                         (1, "src/low/l.cc:2: low must not include mid\n"))

    def test_include_past_a_layer_is_for_tests_only(self):
        text = '#include "low/l.h"\n'
        for name in ["h_test.cc", "test_world.h", "h_testing.h", "h_fuzz.cc"]:
            self.assertEqual(check({f"src/high/{name}": text}), (0, ""))
        self.assertEqual(check({"src/high/latest.cc": text})[0], 1)
        self.assertEqual(check({"src/high/h.cc": text}),
                         (1, "src/high/h.cc:1: high must not include low\n"))

    def test_test_must_not_include_upwards(self):
        self.assertEqual(check({"src/low/l_test.cc": '#include "high/h.h"\n'})[0], 1)

    def test_tests_line_is_for_tests_only(self):
        layers, text = LAYERS + "low tests: mid\n", '#include "mid/m.h"\n'
        self.assertEqual(check({"src/low/l_test.cc": text}, layers), (0, ""))
        self.assertEqual(check({"src/low/l.cc": text}, layers)[0], 1)

    def test_sibling_include_needs_its_path(self):
        code, text = check({"src/low/l.cc": '#include "l.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("by its path from src/", text)
        self.assertEqual(check({"src/low/l.cc": '#include "gtest/gtest.h"\n'})[0], 0)

    def test_folder_without_a_line_is_named(self):
        self.assertEqual(check({"src/odd/o.h": ""}),
                         (1, "src/odd/o.h: folder odd has no line in .ci/layers.txt\n"))

    def test_cycle_is_named(self):
        code, text = check({}, LAYERS.replace("low:", "low: high"))
        self.assertEqual(code, 1)
        self.assertIn("low may reach itself", text)


if __name__ == "__main__":
    unittest.main()
