"""kvrm eval and bench on a small random model: schemas, verdicts, refusals. More cases of suite Cli."""

import json
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.request

from program import WRITE_RANDOM_MODEL, WithRandomModel, main, run, start


class Cli(WithRandomModel):
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

    def test_OpsAddUpToTheStep(self):
        for words in (("-np", "2", "-d", "8", "-n", "4"), ("-p", "20")):
            result = run("bench", "ops", "-m", self.model, "-t", "1", "-r", "2", *words, "--json")
            self.assert_ok(result)
            line = json.loads(result.stdout)
            ops = {op["op"].split(",")[0]: op for op in line["ops"]}
            self.assertLessEqual({"QKV", "attention", "gate + up", "down", "head", "norm"}, ops.keys())
            in_ops = sum(op["ms"] for op in ops.values())
            self.assertGreater(in_ops, 0)
            self.assertLess(in_ops, line["step_ms"])
            layers = ops["attention"]["calls"]
            self.assertEqual(ops["norm"]["calls"], 2 * layers + 1)
            self.assertGreater(ops["down"]["floor_ms"], 0)
        text = run("bench", "ops", "-m", self.model, "-t", "1", "-r", "1", "-n", "2")
        self.assert_ok(text)
        self.assertIn("| outside of ops ", text.stdout.decode())

    def test_ASyntheticCacheMayBeLongerThanTheContext(self):
        words = ("bench", "decode", "-m", self.model, "-t", "1", "-r", "1", "-n", "2", "-d", "1000")
        self.assert_fails(run(*words), 1, "context")
        result = run(*words, "--synthetic", "--json")
        self.assert_ok(result)
        line = json.loads(result.stdout)
        self.assertGreater(line["tokens_per_s"]["median"], 0)
        self.assertIn("--synthetic", line["command"])

    def test_VersusWithoutRivalsSaysWhichCommandBuildsThem(self):
        self.assert_fails(run("bench", "versus", "-m", self.model, "--rivals", self.path("none")), 1,
                          "`tools/rivals`")

    def rivals(self, script_of):
        """A model in two file types, and peers that print what their real models print."""
        rivals = self.path("rivals") / "bin"
        rivals.mkdir(parents=True, exist_ok=True)
        for name, answer in (("llama-bench", '[{"samples_ts": [%s, 1, 1e9]}]'),
                             ("llama-batched-bench", '{"speed_tg": %s}')):
            program = rivals / name
            program.write_text("#!/bin/sh\n" + script_of(name, answer))
            program.chmod(0o755)
        model = self.path("long.Q4_0.gguf")
        subprocess.run([WRITE_RANDOM_MODEL, model, "1024"], check=True)
        self.path("long.Q8_0.gguf", model.read_bytes())
        return model, rivals

    def test_VersusTakesTheFastestPeerSettingOfEachRow(self):
        # Which setting is fastest depends on the row.
        model, rivals = self.rivals(
            lambda name, answer:
            'rate=10\n'
            'case "$*" in *Q8_0*"-fa off"*) rate=30;; *Q4_0*"-fa on"*) rate=20;; esac\n'
            'case "$*" in *Q4_0*"-npl 8"*"-fa on -ctk q8_0"*) rate=40;; esac\n'
            f"printf '{answer}\\n' $rate\n")
        result = run("bench", "versus", "-m", model, "--rivals", rivals, "-r", "1", "-t", "1",
                     "--rows", "1x512,8x512,prefill512", "--json")
        self.assert_ok(result)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual([row["key"] for row in rows], ["1x512", "8x512", "prefill512"])
        peers = [row["families"][0] for row in rows]
        self.assertEqual([peer["best"]["setting"].split(" (")[0] for peer in peers],
                         ["Q8_0, fa off, KV f16", "Q4_0, fa on, KV q8_0", "Q8_0, fa off, KV f16"])
        for row, peer in zip(rows, peers):
            self.assertEqual(len(row["screened_tokens_per_s"]), 6)
            self.assertGreater(peer["floor"]["ms"], 0)
            self.assertAlmostEqual(peer["ratio"], row["kvrm"]["median"] / peer["best"]["median"])

    def test_VersusTakesTheNextSettingWhereAFinalistFailsInARound(self):
        # With prompts of their own (no -pps), as in the rounds, flash attention ends in an abort.
        fails = 'case "$*" in *"-fa on"*) kill -ABRT $$;; esac'
        model, rivals = self.rivals(
            lambda name, answer:
            f'rate=10\ncase "$*" in *-pps*) ;; *) {fails};; esac\n'
            'case "$*" in *"-fa on"*) rate=40;; *Q8_0*) rate=20;; esac\n'
            f"printf '{answer}\\n' $rate\n")
        result = run("bench", "versus", "-m", model, "--rivals", rivals, "-r", "2", "-t", "1",
                     "--rows", "8x512", "--json")
        self.assert_ok(result)
        best = json.loads(result.stdout)["rows"][0]["families"][0]["best"]
        self.assertEqual(best["setting"].split(" (")[0], "Q8_0, fa off, KV f16")
        self.assertEqual(best["samples"], [20, 20])
        self.assertIn("left out:", result.stderr.decode())

    def test_VersusKeepsRowsAndDoesNotRunThemAgain(self):
        model, rivals = self.rivals(lambda name, answer: f"printf '{answer}\\n' 10\n")
        sheet = self.path("sheet.json")
        words = ("bench", "versus", "-m", model, "--rivals", rivals, "-r", "1", "-t", "1", "--out",
                 sheet)
        self.assert_ok(run(*words, "--rows", "1x512"))
        kept = json.loads(sheet.read_text())["rows"][0]
        result = run(*words, "--rows", "1x512,8x512")
        self.assert_ok(result)
        self.assertEqual([row["key"] for row in json.loads(sheet.read_text())["rows"]],
                         ["1x512", "8x512"])
        again = json.loads(sheet.read_text())["rows"][0]
        self.assertEqual((again["date"], again["kvrm"]["command"]),
                         (kept["date"], kept["kvrm"]["command"]))
        # Not equal: the parser of numbers may be off by the last bit.
        self.assertAlmostEqual(again["kvrm"]["median"], kept["kvrm"]["median"], places=3)
        text = result.stdout.decode()
        self.assertIn("8 streams x 512 over 1 stream x 512:", text)
        plot = self.path("rows.svg")
        self.assert_ok(run(*words, "--rows", "1x512", "--plot", plot))
        self.assertEqual(plot.read_text().count("llama.cpp family</text>"), 2)
        self.assert_fails(run(*words, "--plot", self.path("none") / "x.svg"), 1, "--plot")
        self.assertIn("not measured (no text)", text)
        self.assert_fails(run(*words, "--rows", "9x9"), 1, "'9x9' is none of")

    def test_VersusShowsAFileThatLosesTooMuchAndDoesNotCountIt(self):
        model, rivals = self.rivals(lambda name, answer:
                                    'rate=10\ncase "$*" in *Q8_0*) rate=90;; esac\n'
                                    f"printf '{answer}\\n' $rate\n")
        data = self.path("data") / "wikitext2"
        data.mkdir(parents=True, exist_ok=True)
        data.joinpath("wiki.test.raw").write_text("x" * 9000)
        size = model.stat().st_size
        rivals.parent.joinpath("perplexity.json").write_text(json.dumps({
            f"long.Q4_0.gguf, {size} bytes, f32": 20, f"long.Q4_0.gguf, {size} bytes, auto": 20.1,
            f"long.Q8_0.gguf, {size} bytes, auto": 24}))
        result = run("bench", "versus", "-m", model, "--rivals", rivals.parent, "-r", "1", "-t", "1",
                     "--data", data.parent, "--rows", "1x512")
        self.assert_ok(result)
        text = result.stdout.decode()
        self.assertIn("Q8_0 +20.00 %", text)
        self.assertIn("not counted, decode, 1 stream x 512: Q8_0, fa on, KV f16 (rivals), 90.0 t/s",
                      text)
        self.assertIn("| Q4_0, fa ", text)

    def test_VersusHoldsReadinessAndMemoryAgainstTheRivalsThatTakeLess(self):
        # Its server is ready at once without its warm-up, and never with it.
        model, rivals = self.rivals(
            lambda name, answer: 'case "$*" in *"-lm none"*) head -c 300000000 /dev/zero | tail;; esac\n'
            f"printf '{answer}\\n' 10\n")
        server = rivals / "llama-server"
        server.write_text(textwrap.dedent(f"""\
            #!{sys.executable}
            import http.server, sys
            if "--no-warmup" not in sys.argv:
                sys.exit("no memory for a warm-up")
            class Health(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    self.send_response(200 if self.path == "/health" else 404)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")
            http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Health).serve_forever()
            """))
        server.chmod(0o755)
        words = ("bench", "versus", "-m", model, "--rivals", rivals, "-r", "2", "-t", "1", "--rows",
                 "ready,memory")
        result = run(*words, "--json")
        self.assert_ok(result)
        ready, memory = json.loads(result.stdout)["rows"]
        self.assertEqual((ready["key"], ready["unit"], memory["unit"]), ("ready", "s", "bytes"))
        [pair] = ready["pairs"]
        self.assertIn("no warm-up", pair["best"]["setting"])
        self.assertEqual(len(pair["kvrm"]["samples"]), 2)
        self.assertGreater(pair["kvrm"]["median"], 0)
        self.assertIn("left out: '", result.stderr.decode())
        self.assertEqual([pair["rivals"] for pair in memory["pairs"]],
                         ["llama.cpp family, KV f16", "llama.cpp family, KV q8_0"])
        for pair in memory["pairs"]:
            self.assertNotIn("not mapped", pair["best"]["setting"])
            self.assertGreater(pair["kvrm"]["median"], 2**20)
            self.assertAlmostEqual(pair["share"], pair["kvrm"]["median"] / pair["best"]["median"])

    def test_GrowthIsTimeOverTimeOverBytesOverBytes(self):
        words = ("bench", "growth", "-m", self.model, "-t", "1", "-r", "2", "-n", "2")
        result = run(*words, "--json")
        self.assert_ok(result)
        line = json.loads(result.stdout)
        self.assertEqual([row["depth"] for row in line["rows"]], [512, 2048, 8192, 32768])
        first, last = line["rows"][0], line["rows"][-1]
        self.assertEqual(first["growth"], 1)
        self.assertAlmostEqual(
            last["growth"],
            last["ms"]["median"] / first["ms"]["median"] / (last["bytes"] / first["bytes"]))
        text = run(*words)
        self.assert_ok(text)
        self.assertRegex(text.stdout.decode(), r"growth to 32768 tokens: [0-9.]+ \(at most 1.5")

    # ---- bench serve

    def test_TailSaysWhichRivalIsNotThereOrCannotReadTheModel(self):
        folder = self.path("no-rivals")
        folder.mkdir()
        for rival, part in (("vllm", "vllm/bin/vllm"), ("openvino", "tools/rivals openvino"),
                            ("llama", "tools/rivals llama"), ("nobody", "llama, openvino, vllm")):
            self.assert_fails(run("bench", "tail", "-m", self.model, "--rivals", folder, "--rival", rival),
                              1, rival, part)

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


if __name__ == "__main__":
    main()
