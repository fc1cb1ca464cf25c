"""What is made from the option table, held to it from outside: configuration files, completion, man page."""

import re
import shlex
import shutil
import subprocess

from program import ROOT, WithRandomModel, main, run

PAGE = (ROOT / "docs" / "cli.md").read_text()  # cli_test.py holds it to the table


def commands():
    """The words of each command and the spellings of its options, the option's name first."""
    for section in PAGE.split("\n## `kvrm ")[1:]:
        usage = section[:section.index("`")]
        words = [word for word in usage.split() if re.fullmatch("[a-z]+", word)]
        options = []
        for row in re.findall(r"^\| `(-[^`]*)` \|", section, re.MULTILINE):
            spellings = [word.rstrip(",") for word in row.split() if word.startswith("-")]
            name = next(word for word in spellings if word.startswith("--"))
            options.append([name] + [word for word in spellings if word != name])
        yield words, options


class HelpCli(WithRandomModel):

    def completions(self, lines):
        """What bash offers for each line, a list of words whose last is being typed."""
        script = run("help", "--bash")
        self.assert_ok(script)
        text = script.stdout.decode()
        for line in lines:
            words = " ".join(shlex.quote(word) for word in ["kvrm", *line])
            text += (f"COMPREPLY=(); COMP_WORDS=({words}); COMP_CWORD={len(line)}; _kvrm\n"
                     'echo "${COMPREPLY[*]}"\n')
        result = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, timeout=60,
                                cwd=self.folder.name)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        offered = [line.split() for line in result.stdout.decode().splitlines()]
        self.assertEqual(len(offered), len(lines))
        return offered

    def test_TheCompletionScriptIsSoundBash(self):
        script = run("help", "--bash")
        checked = subprocess.run(["bash", "-n"], input=script.stdout, capture_output=True, timeout=60)
        self.assertEqual((checked.returncode, checked.stderr), (0, b""))

    def test_CompletionOffersEachOptionOfEachCommandAndNoOther(self):
        table = list(commands())
        self.assertGreater(len(table), 15)
        offered = self.completions([[*words, "--"] for words, _ in table])
        for (words, options), names in zip(table, offered):
            self.assertGreater(len(options), 1, words)
            self.assertEqual(sorted(names), sorted(option[0] for option in options), words)

    def test_CompletionOffersCommandsThenTheirSecondWordsThenFiles(self):
        table = [words for words, _ in commands()]
        self.path("weights.gguf", b"")
        firsts, benches, begun, files = self.completions(
            [[""], ["bench", ""], ["serve", "--kv"], ["serve", "-m", "weig"]])
        self.assertEqual(firsts, sorted({words[0] for words in table}))
        self.assertEqual(sorted(benches), sorted(words[1] for words in table if words[0] == "bench"))
        self.assertEqual(sorted(begun), ["--kv", "--kv-bytes", "--kv-keep"])
        self.assertEqual(files, ["weights.gguf"])

    def test_TheManPageNamesEachSpellingOfEachOption(self):
        page = run("help", "--man")
        self.assert_ok(page)
        sections = page.stdout.decode().split('.SH "kvrm ')[1:]
        table = list(commands())
        self.assertEqual(len(sections), len(table))
        for section, (words, options) in zip(sections, table):
            self.assertTrue(section.startswith(" ".join(words)), words)
            plain = section.replace("\\-", "-")
            heads = [set(word.rstrip(",") for word in head.split() if word.startswith("-"))
                     for head in re.findall(r"^\.TP\n\.B (.*)$", plain, re.MULTILINE)]
            for option in options:
                self.assertIn(set(option), heads, words)
        if groff := shutil.which("groff"):
            shown = subprocess.run([groff, "-man", "-Tascii", "-ww"], input=page.stdout,
                                   capture_output=True, timeout=60)
            self.assertEqual((shown.returncode, shown.stderr), (0, b""))
            self.assertIn(b"--max-itl-ms", re.sub(b"\x1b\\[[0-9]*m|.\x08", b"", shown.stdout))

    def test_AnUnknownKeyOfAConfigurationIsNamedWithItsLine(self):
        file = self.path("unknown.toml", b"# mine\ntop-k = 7\nslot = 4\n")
        for words in (("serve", "-m", self.model), ("batch", "in", "out"), ("inspect", self.model)):
            self.assert_fails(run(*words, "--config", file), 2, f"--config '{file}', line 3",
                              "'slot' is no setting")
        section = self.path("section.toml", b"top-k = 7\n\n[server]\nport = 1\n")
        self.assert_fails(run("serve", "--config", section), 2, "line 3", "'server'")
        value = self.path("value.toml", b"host = 'a'\nport = 70000\n")
        self.assert_fails(run("serve", "--config", value), 2, "--port '70000'", "line 2")


if __name__ == "__main__":
    main()
