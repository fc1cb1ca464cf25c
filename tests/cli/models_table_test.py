"""tools/models-table, which holds the tables of docs/models.md to what tests left behind."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from program import ROOT, main

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma2", "gemma3")
LAWS = ("LogitsAtEveryPositionAreThoseOfTransformers", "TheGreedyContinuationIsTheSame",
        "ARequestGetsTheSameAloneAndInACrowd")
VOCABULARIES = ("llama-spm", "llama-bpe", "smollm", "qwen2")
TEMPLATES = ("meta-llama-Llama-3.1", "Mistral-Nemo", "Qwen2.5", "Qwen-Qwen3-0.6B", "SmolLM3", "gemma-2")
BEGIN, END = "<!-- table: tools/models-table -->\n", "<!-- end of table -->\n"


def equal(detail="9 rendered"):
    return {"verdict": "equal", "detail": detail}


class ModelsTable(unittest.TestCase):
    """Made-up results in which everything is equal, and a document with their tables."""

    script = ROOT / "tools/models-table"

    def setUp(self):
        self.made = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.made.name)
        self.document = self.folder / "doc.md"
        self.failing = self.missing = ""
        self.vectors = {name: {"kind": name, "gguf": [46, 46], "tokenizer.json": [46, 46]} for name in VOCABULARIES}
        self.templates = {name: equal() for name in TEMPLATES}
        self.write_results()
        self.write_document(self.table().stdout)

    def tearDown(self):
        self.made.cleanup()

    def write_results(self):
        cases = []
        for family in FAMILIES:
            for kind in ("gguf", "safetensors"):
                for law in LAWS:
                    name = f"{law}/{family}_{kind}"
                    inner = "<failure/>" if name == self.failing else ""
                    result = "skipped" if name == self.missing else "completed"
                    cases.append(f'<testcase name="{name}" result="{result}">{inner}</testcase>')
        (self.folder / "golden.xml").write_text(f"<testsuites>{''.join(cases)}</testsuites>")
        (self.folder / "vectors.json").write_text(json.dumps(self.vectors))
        (self.folder / "templates.json").write_text(json.dumps(self.templates))

    def write_document(self, table):
        self.document.write_text(f"Before.\n{BEGIN}{table}{END}After.\n")

    def table(self, ci=""):
        environment = {name: value for name, value in os.environ.items() if name != "CI"}
        if ci:
            environment["CI"] = ci
        return subprocess.run([sys.executable, "-B", self.script, "--results", self.folder,
                               *(["--check", self.document] if self.document.exists() else [])],
                              capture_output=True, text=True, env=environment, check=False)

    def assert_code(self, code, ci=""):
        result = self.table(ci)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)

    def test_ADocumentWithTheTablesOfARunPasses(self):
        self.assert_code(0)
        self.assertIn("| gemma3 | equal | equal | equal | 46 of 46 |", self.document.read_text())

    def test_EveryLineOfTheTablesIsHeldToTheRun(self):
        lines = self.table().stdout.splitlines(keepends=True)
        rows = [at for at, line in enumerate(lines) if line.strip()]
        self.assertGreater(len(rows), 20)
        for at in rows:
            for changed in (lines[at].replace("e", "x", 1), ""):
                if changed != lines[at]:
                    self.write_document("".join(lines[:at] + [changed] + lines[at + 1:]))
                    self.assert_code(1)

    def test_WhatDiffersFailsThoughTheDocumentSaysSo(self):
        def spoil_a_golden():
            self.failing = "TheGreedyContinuationIsTheSame/qwen3_safetensors"

        def skip_a_golden():
            self.missing = "LogitsAtEveryPositionAreThoseOfTransformers/gemma3_gguf"

        def spoil_a_vector():
            self.vectors["qwen2"]["tokenizer.json"] = [45, 46]

        def lose_a_vocabulary():
            del self.vectors["llama-spm"]

        def spoil_a_template():
            self.templates["SmolLM3"] = {"verdict": "DIFFERS", "detail": "one of 25"}

        def refuse_a_template():
            self.templates["SmolLM3"] = {"verdict": "refused", "detail": "line 1"}

        def lose_the_templates_of_a_family():
            del self.templates["SmolLM3"]

        for spoil in (spoil_a_golden, skip_a_golden, spoil_a_vector, lose_a_vocabulary, spoil_a_template,
                      refuse_a_template, lose_the_templates_of_a_family):
            with self.subTest(spoil.__name__):
                self.tearDown()
                self.setUp()
                spoil()
                self.write_results()
                self.write_document(self.table().stdout)
                self.assert_code(1)

    def test_AFamilyOfTheProgramThatNoGoldenNamesFails(self):
        with tempfile.TemporaryDirectory() as root:
            made = pathlib.Path(root)
            (made / "tools").mkdir()
            (made / "src/model/families").mkdir(parents=True)
            (made / "tools/models-table").write_bytes((ROOT / "tools/models-table").read_bytes())
            self.script = made / "tools/models-table"
            self.assert_code(0)
            (made / "src/model/families/new.cc").write_text('const Family kNew = {.name = "new"};\n')
            self.write_document(self.table().stdout)
            self.assert_code(1)
            self.assertIn("| new | not run |", self.document.read_text())

    def test_WhatWasNotRunFailsInCiAndIsSkippedElsewhere(self):
        for name in ("vectors.json", "templates.json"):
            with self.subTest(name):
                self.write_results()
                (self.folder / name).unlink()
                self.assert_code(77)
                self.assert_code(1, ci="true")
        self.write_results()
        (self.folder / "golden.xml").unlink()
        self.assert_code(1)


if __name__ == "__main__":
    main()
