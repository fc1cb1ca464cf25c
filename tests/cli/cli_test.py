"""The kvrm program on a small random model: output, errors, exit codes."""

import json
import os
import pty
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from program import (GREEDY, PROGRAM, ROOT, WithRandomModel, environment, json_lines,
                     main, run, start)


class Cli(WithRandomModel):
    # ---- generate

    def test_SamplingFlagsReachTheDraw(self):
        def answer(*words):
            (line,) = json_lines(self.generate("-p", "abc", "-n", "8", *GREEDY, *words))
            return line["tokens"]

        plain = answer()
        self.assertEqual(answer("--logit-bias", "7+100"), [7] * 8)
        self.assertNotIn(plain[0], answer("-l", f"{plain[0]}-100"))
        self.assertEqual(answer("--presence-penalty", "0", "--frequency-penalty", "0"), plain)
        forced = answer("--logit-bias", "7+100", "--logit-bias", "8+99.5", "--frequency-penalty", "2")
        self.assertEqual(set(forced), {7, 8})
        self.assertEqual(answer("--repeat-last-n", "-1"), plain)

    def test_SamplingFlagsOutOfRangeAreUsageErrors(self):
        for words in (("--logit-bias", "x"), ("--logit-bias", "5"), ("--logit-bias", "5+101"),
                      ("--logit-bias", "5+nan"), ("--logit-bias", "5+"), ("--logit-bias", "5--1"),
                      ("--presence-penalty", "3"), ("--typical", "0")):
            result = run("generate", "-m", self.model, "-p", "abc", *words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn(words[0], result.stderr.decode())

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

    def test_AViewIsToldWhereItIsLossyAndRefusedWhereItIsNone(self):
        words = ("-p", " ".join(map(str, range(40))), "-n", "60", "--temp", "1", "--seed", "5",
                 "--json", "--ignore-eos")
        dense, narrow, wide = (self.generate(*words, "--view", view)
                               for view in ("dense", "sliding:64", "sliding:256"))
        for result in (dense, narrow, wide):
            self.assert_ok(result)
        self.assertIn(b"; view sliding:64 (lossy)", narrow.stderr)
        self.assertNotIn(b"lossy", dense.stderr + wide.stderr)
        answers = [json_lines(result)[0]["tokens"] for result in (dense, narrow, wide)]
        self.assertNotEqual(answers[0], answers[1])
        self.assertEqual(answers[0], answers[2], "no sequence outgrows it")
        for view, limit in (("sliding:100", "a multiple of a page, 16"),
                            ("sliding:32", "at least 64"), ("far", "dense or sliding:W")):
            self.assert_fails(self.generate("-p", "abc", "--view", view), 1, f"view '{view}'", limit)

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
                        "--strict-model", "--drain-seconds", "0", "--temp", "0.25", "-n", "3",
                        "--seed", "7")
        url = self.wait_for_url(process)
        with urllib.request.urlopen(url + "/props", timeout=30) as response:
            defaults = json.load(response)["default_generation_settings"]["params"]
        self.assertEqual((defaults["temperature"], defaults["n_predict"], defaults["seed"],
                          defaults["top_k"]), (0.25, 3, 7, 40))
        request = urllib.request.Request(
            url + "/completion", b'{"prompt":"a","ignore_eos":true}',
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            self.assertEqual(json.load(response)["tokens_predicted"], 3)
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
                (("generate", "stray", "-p", "x"), ("'stray'", "-m")),
                (("serve", "-ngl", "99"), ("unknown option '-ngl'",)),
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
