"""Frame traces from the command line, on a small random model. More cases of suite Cli."""

import resource
import subprocess

from program import GREEDY, PROGRAM, WithRandomModel, environment, json_lines, main, run


class Cli(WithRandomModel):
    # ---- frame traces

    def traced(self, name, *words, prompts=("abc", "hello there")):
        trace = self.path(name)
        result = self.generate(*(word for prompt in prompts for word in ("-p", prompt)), *words,
                               *GREEDY, "--frame-trace", trace)
        self.assert_ok(result)
        return trace, json_lines(result)

    def test_ATracedRunAnswersTheSameAndReplaysWithoutAViolation(self):
        trace, lines = self.traced("run.kvft", "-n", "40", "--chunk", "3")
        plain = json_lines(self.generate("-p", "abc", "-p", "hello there", "-n", "40", "--chunk",
                                         "3", *GREEDY))
        self.assertEqual([line["tokens"] for line in lines], [line["tokens"] for line in plain])
        replay = run("inspect", trace, "--replay", "--json")
        self.assert_ok(replay)
        (report,) = json_lines(replay)
        self.assertEqual(report["violations"], [])
        # Every prompt token and every output token but the last of each was a row.
        self.assertEqual(report["rows"], sum(len(line["prompt_tokens"]) + len(line["tokens"]) - 1
                                             for line in lines))
        (summary,) = json_lines(run("inspect", trace, "--json"))
        self.assertEqual(summary["frames"], report["frames"])
        self.assertEqual(summary["first_epoch"], 1)
        self.assertIsNone(summary["damage"])
        self.assertEqual(summary["bytes"], trace.stat().st_size)
        text = run("inspect", trace)
        self.assert_ok(text)
        self.assertIn(f"{report['frames']} frames, epochs 1 to ", text.stdout.decode())

    def test_InspectShowsAnEpochAsGenerateDid(self):
        trace = self.path("epochs.kvft")
        printed = self.generate("-p", "abc", "-n", "9", *GREEDY, "--frames", "4", "--frame-trace",
                                trace)
        self.assert_ok(printed)
        for epoch in range(1, 5):
            shown = run("inspect", trace, "--epoch", epoch)
            self.assert_ok(shown)
            self.assertTrue(shown.stdout.startswith(f"frame {epoch}: ".encode()))
            self.assertIn(shown.stdout, printed.stderr)
        (frame,) = json_lines(run("inspect", trace, "--epoch", "2", "--json"))
        self.assertEqual(frame["head"]["epoch"], 2)
        self.assertEqual(len(frame["rows"]), frame["head"]["num_rows"])
        self.assertEqual(frame["slots"][0]["tables"][0]["segments"][0]["first_token"], 0)
        self.assert_fails(run("inspect", trace, "--epoch", "1000"), 1, "epoch 1000", "1 to ")

    def test_InspectFindsTheEpochAndFieldInWhichTwoTracesDiffer(self):
        one, _ = self.traced("one.kvft", "-n", "8")
        same, _ = self.traced("same.kvft", "-n", "8")
        other, _ = self.traced("other.kvft", "-n", "8", prompts=("abd", "hello there"))
        row = next(row for row, ids in enumerate(zip(self.ids("abc"), self.ids("abd")))
                   if ids[0] != ids[1])
        equal = run("inspect", one, "--diff", same)
        self.assert_ok(equal)
        self.assertEqual(equal.stdout, b"the traces are equal\n")
        self.assertEqual(json_lines(run("inspect", one, "--diff", same, "--json")),
                         [{"equal": True}])
        self.assert_fails(run("inspect", one, "--diff", other), 1,
                          f"epoch 1, row {row}: token is ")
        differ = run("inspect", one, "--diff", other, "--json")
        self.assertEqual(differ.returncode, 1)
        self.assertEqual({name: json_lines(differ)[0][name] for name in ("epoch", "object", "field")},
                         {"epoch": 1, "object": f"row {row}", "field": "token"})

    def test_InspectReportsAFlippedByteWithItsEpochAndATraceThatIsCutOff(self):
        trace, _ = self.traced("sound.kvft", "-n", "8")
        data = bytearray(trace.read_bytes())
        cut = self.path("cut.kvft", bytes(data[:-5]))
        summary = run("inspect", cut)
        self.assert_ok(summary)
        self.assertIn("is cut off", summary.stdout.decode())
        self.assert_ok(run("inspect", cut, "--replay"))
        data[-5] ^= 16
        (last,) = json_lines(run("inspect", trace, "--json"))
        broken = run("inspect", self.path("broken.kvft", bytes(data)), "--replay")
        self.assert_fails(broken, 1, "1 violations", f"epoch {last['last_epoch']}, record at byte ",
                          "checksum is wrong")
        self.assert_fails(run("inspect", self.path("empty.kvft", b"")), 1, "empty.kvft", "0 bytes")
        self.assert_fails(run("inspect", self.path("none.kvft")), 1, "none.kvft")

    def test_ADiskThatFillsUpEndsTheTraceAndNoAnswer(self):
        words = ("-p", "abc", "-p", "x", "-n", "150", *GREEDY)
        plain = json_lines(self.generate(*words))
        trace = self.path("full.kvft")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        result = subprocess.run(
            [PROGRAM, "generate", "-m", str(self.model), *words, "--frame-trace", str(trace)],
            capture_output=True, timeout=240, env=environment(), preexec_fn=limit)
        self.assert_fails(result, 1, "full.kvft: the trace cannot be written: ")
        self.assertEqual([line["tokens"] for line in json_lines(result)],
                         [line["tokens"] for line in plain])
        replay = run("inspect", trace, "--replay", "--json")
        self.assert_ok(replay)
        self.assertGreater(json_lines(replay)[0]["frames"], 10)
        (summary,) = json_lines(run("inspect", trace, "--json"))
        self.assertIsNone(summary["damage"])

    def test_TraceOptionsThatCannotBeAreRefused(self):
        self.assert_fails(self.generate("-p", "x", "--frame-trace", "/absent/x.kvft"), 1,
                          "--frame-trace /absent/x.kvft", "No such file")
        self.assert_fails(run("serve", "-m", self.model, "--frame-trace", "/absent/x.kvft"), 1,
                          "--frame-trace /absent/x.kvft", "No such file")
        trace, _ = self.traced("two.kvft", "-n", "2")
        self.assert_fails(run("inspect", trace, "--epoch", "1", "--replay"), 2, "one of --epoch")
        self.assert_fails(run("inspect", self.model, "--replay"), 2, "--replay needs a frame trace")
        self.assert_fails(run("inspect", trace, "--diff", self.model), 1, "random.gguf", "magic is")


if __name__ == "__main__":
    main()
