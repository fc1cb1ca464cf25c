"""The kvrm program on a small random model: output, errors, exit codes."""

import json
import os
import pty
import resource
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from program import (PROGRAM, ROOT, WRITE_RANDOM_MODEL, WithRandomModel, environment, json_lines, main,
                     run, start)

GREEDY = ("--temp", "0", "--json", "--ignore-eos")


class Cli(WithRandomModel):
    def generate(self, *words, **options):
        return run("generate", "-m", self.model, *words, **options)

    # ---- generate

    def test_GenerateJsonHasIdsTextReasonAndTimings(self):
        result = self.generate("-p", "abc", "-n", "5", *GREEDY)
        self.assert_ok(result)
        (line,) = json_lines(result)
        self.assertEqual(line["prompt_tokens"], self.ids("abc"))
        self.assertEqual(len(line["tokens"]), 5)
        self.assertTrue(all(isinstance(token, int) for token in line["tokens"]))
        self.assertIsInstance(line["text"], str)
        self.assertEqual(line["finish_reason"], "length")
        self.assertEqual(line["timings"]["prompt_tokens"], len(line["prompt_tokens"]))
        self.assertEqual(line["timings"]["output_tokens"], 5)
        self.assertNotIn("logprobs", line)

    def test_GenerateDefaultsTo128Tokens(self):
        (line,) = json_lines(self.generate("-p", "abc", *GREEDY))
        self.assertEqual(len(line["tokens"]), 128)

    def test_GenerateWithoutLimitEndsWithTheContext(self):
        (line,) = json_lines(self.generate("-p", "abc", "-n", "-1", "-c", "64", *GREEDY))
        self.assertEqual(len(line["prompt_tokens"]) + len(line["tokens"]), 64)
        self.assertEqual(line["finish_reason"], "length")

    def test_SeveralPromptsGiveWhatSingleRunsGiveInTheOrderGiven(self):
        prompts = ["abc", "x", "hello there", "0123456789" * 8, "abc "]
        words = [word for prompt in prompts for word in ("-p", prompt)]
        together = json_lines(self.generate(*words, "-n", "20", *GREEDY))
        alone = [json_lines(self.generate("-p", prompt, "-n", "20", *GREEDY))[0]
                 for prompt in prompts]
        self.assertEqual(len(together), len(prompts))
        for left, right in zip(together, alone):
            for field in ("prompt_tokens", "tokens", "text", "finish_reason"):
                self.assertEqual(left[field], right[field])
        self.assertGreater(len({tuple(line["tokens"]) for line in alone}), 1)

    def test_MorePromptsThanSlotsAllGetTheirAnswers(self):
        words = [word for index in range(7) for word in ("-p", f"prompt {index}")]
        few = json_lines(self.generate(*words, "-n", "6", "-np", "2", *GREEDY))
        many = json_lines(self.generate(*words, "-n", "6", *GREEDY))
        self.assertEqual([line["tokens"] for line in few], [line["tokens"] for line in many])

    def test_ChunksAndThreadsDoNotShowInTheTokens(self):
        prompt = "a long enough prompt to be cut " * 4
        expected = json_lines(self.generate("-p", prompt, "-n", "12", *GREEDY))[0]["tokens"]
        for words in (("--chunk", "1"), ("--chunk", "7"), ("-t", "1"), ("-t", "2")):
            line = json_lines(self.generate("-p", prompt, "-n", "12", *words, *GREEDY))[0]
            self.assertEqual(line["tokens"], expected, words)

    def test_SeededSamplingRepeatsAndAnotherSeedDiffers(self):
        words = ("-p", "abc", "-n", "40", "--temp", "1.5", "--top-k", "0", "--top-p", "1",
                 "--min-p", "0", "--json", "--ignore-eos")
        first, again, other = (json_lines(self.generate(*words, "--seed", seed))[0]["tokens"]
                               for seed in ("7", "7", "8"))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_LogprobsGiveTheTopKOfEachPlaceBestFirst(self):
        (line,) = json_lines(self.generate("-p", "abc", "-n", "4", "--logprobs", "3", *GREEDY))
        self.assertEqual(len(line["logprobs"]), 4)
        for token, top in zip(line["tokens"], line["logprobs"]):
            self.assertEqual(len(top), 3)
            self.assertEqual(top[0][0], token)  # greedy
            values = [logprob for _, logprob in top]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertTrue(all(value <= 0 for value in values))

    def test_OnePromptStreamsTheTextThatJsonHolds(self):
        words = ("-p", "abc", "-n", "30", "--temp", "0", "--ignore-eos")
        text = self.generate(*words).stdout.decode()
        self.assertEqual(text, json_lines(self.generate(*words, "--json"))[0]["text"] + "\n")

    def test_SeveralPromptsArePrintedWithTheirNumbers(self):
        words = ("-p", "abc", "-p", "xyz", "-n", "8", "--temp", "0", "--ignore-eos")
        texts = [line["text"] for line in json_lines(self.generate(*words, "--json"))]
        self.assertEqual(self.generate(*words).stdout.decode(),
                         "--- 1\n" + texts[0] + "\n--- 2\n" + texts[1] + "\n")

    def test_PromptsComeFromFilesAndStandardInputByteForByte(self):
        text = "two\nlines, one line end\n"
        file = self.path("prompt.txt", text.encode())
        lines = json_lines(self.generate("-p", "first", "-f", file, "-f", "-", "-n", "1", *GREEDY,
                                         stdin="from stdin"))
        self.assertEqual([line["prompt_tokens"] for line in lines],
                         [self.ids("first"), self.ids(text), self.ids("from stdin")])

    def test_RawPromptsParseControlTokensButChatMessagesDoNot(self):
        raw = json_lines(self.generate("-p", "<|im_end|>", "-n", "1", *GREEDY))[0]
        self.assertEqual(len(raw["prompt_tokens"]), 1)
        forged = json_lines(self.generate("-p", "<|im_end|>", "--chat", "-n", "1", *GREEDY))[0]
        honest = json_lines(self.generate("-p", "", "--chat", "-n", "1", *GREEDY))[0]
        control = raw["prompt_tokens"][0]
        self.assertEqual(forged["prompt_tokens"].count(control),
                         honest["prompt_tokens"].count(control))
        self.assertGreater(len(forged["prompt_tokens"]), len(honest["prompt_tokens"]))

    def test_APromptLongerThanTheContextIsRefusedWithBothNumbers(self):
        result = self.generate("-p", "x" * 100, "-c", "32", *GREEDY)
        self.assert_fails(result, 1, "100", "32")

    def test_ABadPromptCostsItsNeighboursNothing(self):
        result = self.generate("-p", "abc", "-p", "x" * 300, "-p", "xyz", "-n", "6", *GREEDY)
        self.assert_fails(result, 1, "prompt 2", "300", "256")
        lines = json_lines(result)
        self.assertEqual([line["finish_reason"] for line in lines], ["length", "error", "length"])
        self.assertIn("300", lines[1]["error"])
        alone = json_lines(self.generate("-p", "xyz", "-n", "6", *GREEDY))[0]
        self.assertEqual(lines[2]["tokens"], alone["tokens"])

    def test_AnEmptyPromptIsRefused(self):
        self.assert_fails(self.generate("-p", "", *GREEDY), 1, "prompt")

    def test_NoPromptIsAUsageError(self):
        self.assert_fails(self.generate(), 2, "-p TEXT")

    def test_AReaderThatGoesAwayEndsTheRun(self):
        process = start("generate", "-m", self.model, "-p", "abc", "-n", "-1", "--ignore-eos")
        process.stdout.close()
        process.stdin.close()
        process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), 1)

    def test_CtrlCEndsTheRunAndSaysSo(self):
        process = start("generate", "-m", self.model, "-p", "abc", "-n", "-1", "--ignore-eos")
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(errors.decode().splitlines()[-1], "kvrm generate: interrupted")

    def test_AnOutputThatCannotBeWrittenIsSaidOnce(self):
        for words, stdin in ((("generate", "-m", self.model, "-p", "abc"), b""),
                             (("generate", "-m", self.model, "-p", "abc", "--json"), b""),
                             (("chat", "-m", self.model, "-n", "4"), b"hi\nhi\n"),
                             (("inspect", self.model), b""), (("help",), b"")):
            with open("/dev/full", "wb") as full:
                result = subprocess.run([PROGRAM, *map(str, words)], input=stdin, stdout=full,
                                        stderr=subprocess.PIPE, timeout=60, env=environment())
            self.assert_fails(result, 1, "standard output cannot be written")

    def test_WhatCannotBeReadIsNamedWithTheReason(self):
        folder, reason = self.folder.name, "Is a directory"
        self.assert_fails(self.generate("-p", "x", "--config", folder), 2, f"--config '{folder}'",
                          reason)
        self.assert_fails(self.generate("-f", folder), 1, f"--file '{folder}'", reason)
        self.assert_fails(self.generate("-f", "/absent"), 1, "--file '/absent'", "No such file")
        self.assert_fails(run("eval", "ppl", "-m", self.model, "-f", folder), 1,
                          f"--file '{folder}'", reason)
        for words, name in ((("tokenize",), "standard input"), (("generate", "-f", "-"), "--file")):
            standard_input = os.open(folder, os.O_RDONLY)
            result = subprocess.run([PROGRAM, *words, "-m", str(self.model)], stdin=standard_input,
                                    capture_output=True, timeout=60, env=environment())
            os.close(standard_input)
            self.assert_fails(result, 1, f"{name} '-'", reason)
        self.assert_fails(run("inspect", "/dev/null"), 1, "'/dev/null'", "not a regular file")

    # ---- chat

    def test_ChatAnswersEachLineAndExitLeaves(self):
        result = run("chat", "-m", self.model, "-n", "6", "--temp", "0",
                     stdin="hi\n\nyou\n/exit\nnever asked\n")
        self.assert_ok(result)
        one = run("chat", "-m", self.model, "-n", "6", "--temp", "0", stdin="hi")
        self.assert_ok(one)
        self.assertTrue(result.stdout.startswith(one.stdout))
        self.assertGreater(len(result.stdout), len(one.stdout))

    def test_ChatKeepsItsHistoryUntilClear(self):
        # Each turn fits alone, but not the third behind the first two.
        turn = "x" * 60 + "\n"
        words = ("chat", "-m", self.model, "-n", "4", "-c", "192", "--temp", "0", "--system", "s")
        full = run(*words, stdin=turn * 3)
        self.assert_fails(full, 1, "192")
        self.assert_ok(run(*words, stdin=turn + "/clear\n" + turn + "/clear\n" + turn))

    def test_CtrlCAtThePromptOfAChatDoesNotLeave(self):
        process = start("chat", "-m", self.model, "-n", "4", "--temp", "0")
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        process.stdout.read(1)  # it answers: Ctrl-C is caught by now
        process.send_signal(signal.SIGINT)
        self.assertIsNone(process.poll())
        output, _ = process.communicate(b"again\n/exit\n", timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(output)

    def test_CtrlDAtATerminalLeavesTheChat(self):
        terminal, end = pty.openpty()
        with subprocess.Popen([PROGRAM, "chat", "-m", str(self.model), "-n", "4"], stdin=end,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=environment()) as process:
            os.close(end)
            self.assertEqual(process.stdout.read(2), b"> ")
            os.write(terminal, b"\x04")
            process.communicate(timeout=60)
        os.close(terminal)
        self.assertEqual(process.returncode, 0)

    # ---- tokenize

    def ids(self, text):
        result = run("tokenize", "--ids", "-m", self.model, stdin=text)
        self.assert_ok(result)
        return [int(word) for word in result.stdout.split()]

    def test_TokenizedTextComesBackFromItsIds(self):
        for text in ["", "a", "hello, world\n", "tabs\t and  blanks ", "\u00e4\u20ac\U0001f600",
                     "<|im_start|>user\nhi<|im_end|>\n", "\x00\x01\x7f"]:
            ids = " ".join(map(str, self.ids(text)))
            back = run("tokenize", "--decode", "-m", self.model, stdin=ids)
            self.assert_ok(back)
            self.assertEqual(back.stdout.decode(), text)

    def test_TokenizePrintsAnIdAndItsPieceALine(self):
        text = "ab \n"
        result = run("tokenize", "-m", self.model, stdin=text)
        rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
        self.assertEqual([int(row[0]) for row in rows], self.ids(text))
        self.assertEqual("".join(row[1] for row in rows), "ab \\n")

    def test_DecodeRefusesWhatIsNoId(self):
        for text in ["abc", "-1", "320", "99999999999", "1.5"]:
            self.assert_fails(run("tokenize", "--decode", "-m", self.model, stdin=text), 1,
                              f"'{text}'", "319")

    # ---- inspect

    def test_InspectJsonNamesGeometryAndMemory(self):
        result = run("inspect", self.model, "--json")
        self.assert_ok(result)
        self.assertIsInstance(json.loads(result.stdout), dict)
        text = run("inspect", self.model)
        self.assert_ok(text)
        self.assertIn("superblock", text.stdout.decode())

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
        # Python ignores SIGXFSZ; left so in the child, the limit reads as a full disk does.
        result = subprocess.run(
            [PROGRAM, "generate", "-m", str(self.model), *words, "--frame-trace", str(trace)],
            capture_output=True, timeout=240, env=environment(), preexec_fn=limit,
            restore_signals=False)
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

    # ---- eval and bench

    def test_PerplexityOfARandomModelIsThatOfItsWindows(self):
        text = self.path("text.txt", bytes(range(32, 127)) * 20)
        words = ("eval", "ppl", "-m", self.model, "-f", text, "-c", "64", "--json")
        two, one = (json.loads(run(*words, "--windows", count).stdout) for count in (2, 1))
        self.assertEqual(two["tokens_scored"], 2 * 31)
        self.assertEqual(two["cumulative_ppl"][0], one["ppl"])
        self.assertGreater(one["ppl"], 1)

    def test_PerplexityNeedsATextOfOneWindow(self):
        short = self.path("short.txt", b"abc")
        self.assert_fails(run("eval", "ppl", "-m", self.model, "-f", short), 1, "512", "short.txt")
        self.assert_fails(run("eval", "ppl", "-m", self.model), 2, "-f FILE")

    def test_BenchPrintsOneSchemaWithFloorMachineAndDate(self):
        decode = run("bench", "decode", "-m", self.model, "-np", "3", "-d", "20", "-n", "4", "-r",
                     "2", "--json")
        prefill = run("bench", "prefill", "-m", self.model, "-p", "50", "-r", "2", "--json")
        for result, test in ((decode, "tg4 @ d20 x 3"), (prefill, "pp50")):
            self.assert_ok(result)
            line = json.loads(result.stdout)
            self.assertEqual(line["test"], test)
            self.assertEqual(len(line["tokens_per_s"]["samples"]), 2)
            self.assertLessEqual({"schema", "machine", "date", "noisy", "command"}, line.keys())
        floor = json.loads(decode.stdout)["floor"]
        self.assertGreater(floor["bytes"], 0)
        self.assertGreater(floor["ceiling_per_s"], 0)

    def test_BenchRefusesMoreTokensThanTheContext(self):
        self.assert_fails(run("bench", "decode", "-m", self.model, "-d", "200", "-n", "57"), 1,
                          "257", "256")

    def test_HeartPrintsTheSchemaAndAVerdictOnEachGoal(self):
        result = run("bench", "heart", "--quick", "--json")
        self.assert_ok(result)
        line = json.loads(result.stdout)
        self.assertEqual(line["schema"], 1)
        self.assertLessEqual({"test", "command", "sizes", "check_tier", "machine", "date", "noisy"},
                             line.keys())
        self.assertEqual(len(line["goals"]), 6)
        for goal in line["goals"]:
            self.assertIn(goal["verdict"], ("met", "MISSED", "not measured"))
            self.assertEqual("measured" in goal, goal["verdict"] != "not measured")
        for verb in line["verbs"]:
            for clock in ("cpu_ns", "wall_ns"):
                self.assertLessEqual({"median", "min", "max", "spread"}, verb["call"][clock].keys())
        self.assertGreater(len(line["steps"]["rows"]), 0)
        kvrm, usual, sharing_kvrm, sharing_usual = line["churn"]
        self.assertEqual((kvrm["design"], usual["design"]), ("kvrm", "single pages"))
        self.assertEqual(kvrm["script"], usual["script"])
        self.assertEqual(sharing_kvrm["script"], sharing_usual["script"])
        self.assertLess(kvrm["read_runs"], usual["read_runs"])
        self.assertGreater(sharing_kvrm["found_tokens"], 0)

    def test_HeartMeasuresOnePartAlone(self):
        result = run("bench", "heart", "--quick", "--part", "verbs")
        self.assert_ok(result)
        text = result.stdout.decode()
        self.assertIn("## Verbs", text)
        self.assertNotIn("## Churn", text)
        self.assertIn("not measured", text)

    def test_VersusWithoutRivalsSaysWhichCommandBuildsThem(self):
        self.assert_fails(run("bench", "versus", "-m", self.model, "--rivals", self.path("none")), 1,
                          "`tools/rivals`")

    def test_VersusTakesTheFastestPeerSettingOfEachRow(self):
        # Peers that print what their real models print; which setting is fastest depends on the row.
        rivals = self.path("rivals") / "bin"
        rivals.mkdir(parents=True, exist_ok=True)
        for name, answer in (("llama-bench", '[{"samples_ts": [%s, 1, 1e9]}]'),
                             ("llama-batched-bench", '{"speed_tg": %s}')):
            program = rivals / name
            program.write_text(
                '#!/bin/sh\nrate=10\n'
                'case "$*" in *Q8_0*"-fa off"*) rate=30;; *Q4_0*"-fa on"*) rate=20;; esac\n'
                'case "$*" in *Q4_0*"-npl 8"*"-fa on -ctk q8_0"*) rate=40;; esac\n'
                f"printf '{answer}\\n' $rate\n")
            program.chmod(0o755)
        model = self.path("long.Q4_0.gguf")
        subprocess.run([WRITE_RANDOM_MODEL, model, "1024"], check=True)
        self.path("long.Q8_0.gguf", model.read_bytes())
        words = ("bench", "versus", "-m", model, "--rivals", rivals, "-r", "1", "-t", "1")
        result = run(*words, "--json")
        self.assert_ok(result)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual([row["best_peer"]["setting"].split(" (")[0] for row in rows],
                         ["Q8_0, fa off, KV f16", "Q4_0, fa on, KV q8_0", "Q8_0, fa off, KV f16",
                          "Q8_0, fa off, KV f16"])
        for row in rows:
            self.assertEqual(len(row["screened_tokens_per_s"]), 6)
            self.assertGreater(row["best_peer_floor"]["ms"], 0)
            self.assertAlmostEqual(row["ratio"], row["kvrm"]["median"] / row["best_peer"]["median"])
        text = run(*words)
        self.assert_ok(text)
        self.assertIn("best peer t/s", text.stdout.decode())
        self.assertIn("8 streams x 512 over 1 stream x 512:", text.stdout.decode())

    # ---- bench serve

    def test_LoadAsksWhatTheWorkloadSaysAndKeepsEveryRequest(self):
        self.path("t.csv", b"row,arrival_us,prompt_tokens,output_tokens\n0,0,5,7\n1,90000,400,7\n")
        workload = self.path("w.toml", b"""
api = "completions"
requests = 3
itl-ms = 60000
[streams]
clients = 2
prompt-tokens = 8
output-tokens = 10
[traced]
arrivals = "trace"
trace = "t.csv"
speed = 2
prompt-tokens = "trace"
output-tokens = "trace"
""")
        samples, page = self.path("s.jsonl"), self.path("p.html")
        process = start("serve", "-m", self.model, "--port", "0")
        url = self.wait_for_url(process)
        result = run("bench", "serve", url, "-w", workload, "--json", "--samples", samples, "--html",
                     page, "--server-pid", process.pid, "--set", "streams.output-tokens=9")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assert_ok(result)
        line = json.loads(result.stdout)
        self.assertLessEqual({"schema", "machine", "date", "noisy", "command", "own_cpu_percent",
                              "server_cpu_percent"}, line.keys())
        self.assertEqual((line["test"], line["context_tokens"]), ("serve w", 256))
        streams, traced = line["sources"]
        self.assertEqual((streams["due"], streams["outcomes"]["done"]), (3, 3))
        self.assertEqual(streams["output_tokens"], 27)
        # A word is several tokens of this byte vocabulary: the second row fits neither way.
        self.assertEqual((traced["due"], traced["cut_requests"]), (2, 1))
        lines = [json.loads(text) for text in samples.read_text().splitlines()]
        self.assertEqual([each["id"] for each in lines], list(range(5)))
        due_us = [each["due_us"] for each in lines if each["source"] == "traced"]
        self.assertEqual(due_us[1] - due_us[0], 45000)
        self.assertTrue(page.read_text().startswith("<!doctype html>"))

    def test_LoadSaysWhatItCannotDo(self):
        workload = self.path("w1.toml", b"[a]\n")
        with socket.socket() as taken:  # bound and not listening: nobody answers
            taken.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % taken.getsockname()[1]
            for words, code, parts in (
                    ((), 2, ("URL",)),
                    ((url,), 2, ("--workload",)),
                    ((url, "-w", self.path("none.toml")), 1, ("none.toml",)),
                    ((url, "-w", self.path("w2.toml", b"[a]\nclients = x\n")), 1,
                     ("a.clients", "'x'")),
                    ((url, "-w", self.path("w3.toml", b"[a]\narrivals=trace\ntrace=no.csv\n")), 1,
                     ("no.csv", "--data")),
                    (("https://h", "-w", workload), 1, ("https://h", "http://HOST")),
                    ((url, "-w", workload, "--header", "bad"), 1, ("--header", "'bad'")),
                    ((url, "-w", workload), 1, (url, "refused")),
                    ((url, "-w", workload, "--model-id", "m", "--set", "context=99", "--samples",
                      self.path("no/s")), 1, ("--samples", "no/s"))):
                self.assert_fails(run("bench", "serve", *words), code, *parts)

    def test_LoadWithoutOneWholeAnswerFails(self):
        workload = self.path("w4.toml", b"requests = 2\n[a]\n")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % taken.getsockname()[1]
            result = run("bench", "serve", url, "-w", workload, "--json", "--model-id", "m", "--set",
                         "context=99")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"no request was answered whole", result.stderr)
        self.assertEqual(json.loads(result.stdout)["all"]["outcomes"]["connect"], 2)

    def test_CtrlCEndsALoadAndWhatWasSeenIsReported(self):
        workload = self.path("w5.toml", b"api = completions\nduration-s = 600\n[a]\n"
                                        b"prompt-tokens = 5\noutput-tokens = 3\n")
        server = start("serve", "-m", self.model, "--port", "0")
        url = self.wait_for_url(server)
        load = start("bench", "serve", url, "-w", workload, "--json")
        finished = 0
        while finished < 2:
            with urllib.request.urlopen(url + "/metrics", timeout=30) as response:
                finished = sum(float(line.split()[-1]) for line in response.read().decode().splitlines()
                               if line.startswith("kvrm_choices_finished_total{"))
        load.send_signal(signal.SIGINT)
        output, errors = load.communicate(timeout=60)
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
        self.assertEqual(load.returncode, 0, errors.decode())
        line = json.loads(output)
        self.assertTrue(line["interrupted"])
        self.assertGreaterEqual(line["all"]["outcomes"]["done"], 1)
        self.assertLessEqual(line["all"]["outcomes"]["unfinished"], 1)

    # ---- serve

    def test_ServeAnswersHealthAndEndsOnSigterm(self):
        process = start("serve", "-m", self.model, "--port", "0", "-np", "3")
        self.assertIn(b"x 3 slots", process.stderr.readline())
        url = self.wait_for_url(process)
        with urllib.request.urlopen(url + "/health", timeout=30) as response:
            self.assertEqual(response.status, 200)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_ServeTakesItsSettingsFromTheCommandLine(self):
        process = start("serve", "-m", self.model, "--port", "0", "--alias", "org/name",
                        "--strict-model", "--drain-seconds", "0")
        url = self.wait_for_url(process)
        with urllib.request.urlopen(url + "/v1/models", timeout=30) as response:
            self.assertEqual(json.load(response)["data"][0]["id"], "org/name")
        request = urllib.request.Request(url + "/v1/completions", b'{"model":"x","prompt":"a"}',
                                         {"Content-Type": "application/json"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_ServeTracesItsFrames(self):
        trace = self.path("serve.kvft")
        process = start("serve", "-m", self.model, "--port", "0", "--frame-trace", trace)
        url = self.wait_for_url(process)
        request = urllib.request.Request(
            url + "/v1/completions", b'{"prompt":"abc","max_tokens":5,"ignore_eos":true}',
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            usage = json.load(response)["usage"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        replay = run("inspect", trace, "--replay", "--json")
        self.assert_ok(replay)
        self.assertEqual(json_lines(replay)[0]["rows"], usage["total_tokens"] - 1)

    def wait_for_url(self, process):
        for line in process.stderr:
            if b"serving on http://" in line:
                return line.decode().split("serving on ", 1)[1].split()[0]
        self.fail("the server ended before it served")

    def test_APortInUseIsNamed(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            result = run("serve", "-m", self.model, "--port", port)
        self.assert_fails(result, 1, str(port))

    # ---- models that cannot be run

    def test_AMissingFileIsNamed(self):
        missing = self.path("missing.gguf")
        for words in (("generate", "-p", "x"), ("chat",), ("serve",), ("tokenize",), ("inspect",),
                      ("bench", "decode"), ("bench", "prefill")):
            self.assert_fails(run(*words, "-m", missing), 1, "missing.gguf")

    def test_WithoutTheDefaultModelTheMessageSaysHowToGetIt(self):
        result = run("generate", "-p", "x", XDG_CACHE_HOME=self.folder.name)
        self.assert_fails(result, 1, "`tools/get-model`")

    def test_AnInstalledModelIsFoundByItsName(self):
        models = self.path("kvrm") / "models"
        models.mkdir(parents=True, exist_ok=True)
        (models / "Tiny-Random.gguf").write_bytes(self.model.read_bytes())
        result = run("tokenize", "--ids", "-m", "tiny", stdin="a", XDG_CACHE_HOME=self.folder.name)
        self.assert_ok(result)

    def test_TruncatedFilesAreRefusedAtEachLength(self):
        whole = self.model.read_bytes()
        for length in (0, 3, 4, 20, 100, 5000, len(whole) // 2, len(whole) - 1):
            cut = self.path("cut.gguf", whole[:length])
            self.assert_fails(run("generate", "-p", "x", "-m", cut), 1, "cut.gguf")

    def test_AnUnknownArchitectureIsNamed(self):
        whole = self.model.read_bytes()
        self.assertIn(b"llama", whole)
        odd = self.path("odd.gguf", whole.replace(b"llama", b"alpac"))
        self.assert_fails(run("generate", "-p", "x", "-m", odd), 1, "alpac")

    def test_TooLittleMemoryForKvIsRefused(self):
        self.assert_fails(self.generate("-p", "x", "--kv-bytes", "1KiB"), 1, "1024")

    # ---- usage

    def test_UsageErrorsAreOneLineAndExitCode2(self):
        for words, parts in (
                (("frobnicate",), ("frobnicate", "generate")),
                (("bench", "nothing"), ("bench nothing", "bench decode")),
                (("generate", "--bogus"), ("kvrm generate: ", "--bogus")),
                (("generate", "--prompt"), ("kvrm generate: --prompt needs a value",)),
                (("generate", "--temp", "hot", "-p", "x"), ("--temp", "hot", "0 to 100")),
                (("serve", "--port", "70000"), ("--port", "70000", "65535")),
                (("generate", "--kv-bytes", "8XB"), ("--kv-bytes", "8XB", "8GiB")),
                (("generate", "-c"), ("ctx",)),
                (("inspect", "a", "b"), ("'b'",)),
                (("generate", "stray", "-p", "x"), ("'stray'",)),
                (("generate", "-p", "x", "--logprobs", "2"), ("--json",)),
                (("tokenize", "--ids", "--decode"), ("--decode",))):
            self.assert_fails(run(*words), 2, *parts)

    def test_ABadEnvironmentValueNamesItsVariable(self):
        self.assert_fails(run("generate", "-p", "x", KVRM_THREADS="many"), 2, "KVRM_THREADS")

    def test_WithoutACommandTheUsageGoesToStandardError(self):
        result = run()
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn(b"usage: kvrm", result.stderr)

    def test_HelpAndVersionGoToStandardOutput(self):
        for words in (("help",), ("--help",), ("help", "bench", "decode"), ("generate", "-h"),
                      ("--version",), ("help", "--man"), ("help", "--bash")):
            result = run(*words)
            self.assert_ok(result)
            self.assertTrue(result.stdout, words)

    def test_PrintedConfigShowsValueAndSource(self):
        file = self.path("config.toml", b"top-k = 7\n")
        result = run("generate", "--config", file, "--temp", "0.5", "--print-config",
                     KVRM_MIN_P="0.1")
        self.assert_ok(result)
        lines = result.stdout.decode().splitlines()
        for line in ("top-k = 7  # configuration file", "temp = 0.5  # command line",
                     "min-p = 0.1  # environment", "top-p = 0.95  # default"):
            self.assertIn(line, lines)

    def test_TheDocumentOfTheCommandsIsTheTables(self):
        result = run("help", "--markdown")
        self.assert_ok(result)
        self.assertEqual((ROOT / "docs" / "cli.md").read_text(), result.stdout.decode())


if __name__ == "__main__":
    main()
