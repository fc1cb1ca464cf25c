"""Model folders from outside: every command, by path and by name; generation_config.json."""

import json
import pathlib
import signal
import urllib.request

from model_folder import vocab_size, write_folder
from program import WithRandomModel, json_lines, main, run, start

PLAIN = ("-p", "abc", "-n", "24", "--json")


class FolderCli(WithRandomModel):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = pathlib.Path(cls.folder.name)
        cls.models = cls.root / "kvrm" / "models"
        write_folder(cls.models / "tiny-one")

    def tokens(self, *words, model="tiny-one"):
        (line,) = json_lines(self.ok("generate", "-m", self.models / model, *PLAIN, *words))
        return line["tokens"]

    def ok(self, *words, **options):
        result = run(*words, **options)
        self.assert_ok(result)
        return result

    def test_AFolderIsFoundByItsName(self):
        greedy = self.tokens("--temp", "0")
        (line,) = json_lines(self.ok("generate", "-m", "tiny-one", *PLAIN, "--temp", "0",
                                     XDG_CACHE_HOME=str(self.root)))
        self.assertEqual(line["tokens"], greedy)
        self.assertGreater(len(set(greedy)), 1)

    def test_OneFileAndSeveralWithAnIndexAreTheSameModel(self):
        write_folder(self.models / "tiny-three", num_files=3)
        self.assertEqual(self.tokens("--temp", "0", model="tiny-three"), self.tokens("--temp", "0"))

    def test_EachTypeOfTensorThatHoldsTheValuesGivesTheSameModel(self):
        texts = []
        for dtype in ("F32", "F16", "BF16"):
            write_folder(self.models / f"tiny-{dtype}", dtype=dtype)
            described = json.loads(self.ok("inspect", "--json", "-m", self.models / f"tiny-{dtype}").stdout)
            self.assertEqual(described["missing"], [])
            texts.append(self.tokens("--temp", "0", "--weights", "f32", model=f"tiny-{dtype}"))
        self.assertEqual(texts, [texts[0]] * 3)
        self.assertGreater(len(set(texts[0])), 1)

    def test_EveryCommandReadsAFolder(self):
        model = self.models / "tiny-one"
        text = self.path("text.txt", b"some text, and some more of it. " * 8)
        self.ok("eval", "ppl", "-m", model, "-f", text, "-c", "16", "--windows", "1")
        self.ok("bench", "decode", "-m", model, "-n", "2", "-r", "1")
        described = json.loads(self.ok("inspect", "--json", "-m", model).stdout)
        self.assertEqual(described["metadata"]["general.name"], "tiny-one")
        self.assertEqual(described["missing"], [])
        ids = self.ok("tokenize", "--ids", "-m", model, stdin="abc").stdout
        (line,) = json_lines(self.ok("generate", "-m", model, *PLAIN))
        self.assertEqual([int(number) for number in ids.split()], line["prompt_tokens"])

    def test_ARecordOfAFolderRunsAgainAndAnotherFolderIsNotTaken(self):
        record = self.root / "folder.kvrec"
        self.tokens("--temp", "0", "--record", record)
        self.ok("record", "replay", record, "-m", self.models / "tiny-one")
        write_folder(self.models / "tiny-other", num_files=2)
        self.assert_fails(run("record", "replay", record, "-m", self.models / "tiny-other"), 1,
                          "is not the recorded one")

    def test_ModelsListsFoldersFilesAndWhatGetModelGets(self):
        (self.models / "broken.gguf").write_bytes(b"no model")
        result = json.loads(self.ok("models", "--json", XDG_CACHE_HOME=str(self.root)).stdout)
        (self.models / "broken.gguf").unlink()
        installed = {model["name"]: model for model in result["installed"]}
        tiny = installed["tiny-one"]
        self.assertEqual(tiny["path"], str(self.models / "tiny-one"))
        self.assertEqual((tiny["family"], tiny["types"], tiny["place"]), ("llama", "F32", "models"))
        self.assertEqual(tiny["bytes"], (self.models / "tiny-one/model.safetensors").stat().st_size)
        self.assertNotIn("missing", tiny)
        self.assertIn("broken.gguf", installed["broken"]["missing"])
        default = result["get_model"][0]
        self.assertEqual(default["name"], "smollm2-135m")
        self.assertFalse(default["installed"])
        text = self.ok("models", XDG_CACHE_HOME=str(self.root)).stdout.decode()
        for part in ("tiny-one", "smollm2-135m", "gemma3-270m", "shown and asked about", "-hf"):
            self.assertIn(part, text)

    # ---- generation_config.json

    def test_WhatTheModelSaysOfSamplingHoldsUnlessAnOptionSaysOtherwise(self):
        write_folder(self.models / "tiny-greedy", generation={"temperature": 0, "do_sample": True})
        greedy, drawn = self.tokens("--temp", "0"), self.tokens()
        self.assertNotEqual(greedy, drawn)
        self.assertEqual(self.tokens(model="tiny-greedy"), greedy)
        self.assertEqual(self.tokens("--temp", "0.8", model="tiny-greedy"), drawn)
        self.assertEqual(self.tokens("--generation-config", "none", model="tiny-greedy"), drawn)
        write_folder(self.models / "tiny-top", generation={
            "top_k": 3, "top_p": 0.5, "min_p": 0.0, "repetition_penalty": 1.3, "temperature": 1.5})
        by_option = self.tokens("--top-k", "3", "--top-p", "0.5", "--min-p", "0", "--temp", "1.5",
                                "--repeat-penalty", "1.3")
        self.assertEqual(self.tokens(model="tiny-top"), by_option)
        self.assertNotEqual(by_option, drawn)

    def test_EachOfItsEndTokensEndsAnAnswer(self):
        greedy = self.tokens("--temp", "0")
        stop = greedy[5]
        write_folder(self.models / "tiny-ends", generation={"eos_token_id": [stop, 0]})
        ended = self.tokens("--temp", "0", model="tiny-ends")
        self.assertEqual(ended, greedy[:greedy.index(stop) + 1])
        self.assertEqual(self.tokens("--temp", "0", "--generation-config", "none",
                                     model="tiny-ends"), greedy)

    def test_WhatIsWrongWithItIsOneLine(self):
        for generation, part in (({"temperature": "hot"}, "field 'temperature' is no number"),
                                 ({"top_p": 2}, "--generation-config none"),
                                 ({"eos_token_id": vocab_size()}, "eos_token_id")):
            write_folder(self.models / "tiny-bad", generation=generation)
            result = run("generate", "-m", self.models / "tiny-bad", *PLAIN)
            self.assert_fails(result, 1, "generation", part)

    def test_AKindOfTokenizerThatIsNotBuiltIsNamedByEveryCommand(self):
        write_folder(self.models / "tiny-unigram")
        (self.models / "tiny-unigram" / "tokenizer.json").write_text(json.dumps(
            {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]}}))
        for command in (("tokenize",), ("generate", *PLAIN), ("serve", "--port", "0")):
            self.assert_fails(run(command[0], "-m", self.models / "tiny-unigram", *command[1:]), 1,
                              "tokenizer.json", 'model "Unigram" is not supported')

    def test_TheServerTakesThemForRequestsThatSayNothing(self):
        write_folder(self.models / "tiny-greedy", generation={"temperature": 0})
        server = start("serve", "-m", self.models / "tiny-greedy", "--port", "0")
        try:
            url = self.wait_for_url(server)

            def answer(**fields):
                body = {"model": "m", "prompt": "abc", "max_tokens": 24, "return_tokens": True, **fields}
                request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request) as response:
                    return json.loads(response.read())["choices"][0]["text"]

            self.assertEqual(answer(), answer(temperature=0))
            self.assertEqual(answer(), answer())
            self.assertNotEqual(answer(temperature=1.5, seed=3), answer())
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)


if __name__ == "__main__":
    main()
