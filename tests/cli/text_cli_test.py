"""kvrm template and kvrm tokenize by lines, from outside."""

import json

from program import WithRandomModel, json_lines, main, run


class TextCli(WithRandomModel):

    def rendered(self, conversation, *words):
        result = run("template", *words, stdin=json.dumps(conversation))
        self.assert_ok(result)
        return result.stdout.decode()

    def test_EachLineOfJsonBecomesALineOfIds(self):
        texts = ["", "a b", "\u00e9\n\"", "<|im_end|>"]
        result = run("tokenize", "--json-lines", "-m", self.model,
                     stdin="".join(json.dumps(text) + "\n" for text in texts))
        self.assert_ok(result)
        for text, ids in zip(texts, json_lines(result), strict=True):
            alone = run("tokenize", "--ids", "-m", self.model, stdin=text).stdout.decode()
            self.assertEqual(ids, [int(number) for number in alone.split()])

    def test_ALineThatIsNoJsonStringIsNamed(self):
        result = run("tokenize", "--json-lines", "-m", self.model, stdin='"a"\n[1]\n')
        self.assert_fails(result, 1, "line 2", "no JSON string")

    def test_ANamedTemplateNeedsNoModel(self):
        text = self.rendered([{"role": "user", "content": "Hi"}], "--chat-template", "chatml")
        self.assertEqual(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")

    def test_EveryNamedTemplateRendersAConversationInItsFamilysForm(self):
        conversation = {"messages": [{"role": "system", "content": "S"},
                                     {"role": "user", "content": " U "},
                                     {"role": "assistant", "content": "A"},
                                     {"role": "user", "content": "V"}],
                        "bos_token": "<s>", "eos_token": "</s>"}
        expected = {
            "chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U <|im_end|>\n"
                      "<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
                      "<|im_start|>assistant\n",
            "gemma": "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA"
                     "<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
            "llama2": "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]",
            "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
                      "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
                      "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
                      "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
                      "<|start_header_id|>assistant<|end_header_id|>\n\n",
            "mistral": "<s>[INST] S\n\n U  [/INST] A</s>[INST] V [/INST]",
            "phi3": "<|system|>\nS<|end|>\n<|user|>\n U <|end|>\n<|assistant|>\nA<|end|>\n"
                    "<|user|>\nV<|end|>\n<|assistant|>\n",
            "vicuna": "S\n\nUSER:  U \nASSISTANT: A</s>\nUSER: V\nASSISTANT:",
            "zephyr": "<|system|>\nS</s>\n<|user|>\n U </s>\n<|assistant|>\nA</s>\n"
                      "<|user|>\nV</s>\n<|assistant|>\n",
        }
        for name, text in expected.items():
            self.assertEqual(self.rendered(conversation, "--chat-template", name), text, name)

    def test_ATemplateFileSeesToolsPartsAndFurtherVariables(self):
        path = self.path("t.jinja", b"{% for m in messages %}{{ m.tool_calls | tojson }}"
                                    b"{{ m.content is none }}{% endfor %}{{ tools[0].n }}{{ deep }}"
                                    b"{{ strftime_now('%Y-%m-%d') }}{{ add_generation_prompt }}")
        conversation = {"messages": [{"role": "assistant", "content": None, "tool_calls": [1.5]}],
                        "tools": [{"n": "T"}], "add_generation_prompt": False,
                        "chat_template_kwargs": {"deep": True}}
        self.assertEqual(
            self.rendered(conversation, "--chat-template", path, "--date", "2024-02-29"),
            "[1.5]TrueTTrue2024-02-29False")

    def test_LinesCarryTextOrError(self):
        path = self.path("r.jinja", b"{{ raise_exception('no') if messages | length == 0 else 'ok' }}")
        result = run("template", "--json-lines", "--chat-template", path,
                     stdin='[]\n[{"role": "user", "content": ""}]\n{"messages": 1}\n')
        self.assert_ok(result)
        self.assertEqual(json_lines(result), [{"error": "chat template, line 1: no"}, {"text": "ok"},
                                              {"error": "messages is no list"}])

    def test_WhatIsWrongWithATemplateIsOneLine(self):
        self.assert_fails(run("template", "--chat-template", "nosuch", stdin="[]"), 1,
                          "--chat-template: no file 'nosuch'", "chatml")
        path = self.path("bad.jinja", b"a\n{% include 'x' %}")
        for command in ("template", "serve"):
            self.assert_fails(run(command, "-m", self.model, "--chat-template", path, stdin="[]"), 1,
                              'line 2: statement "include" is not supported')
        self.assert_fails(run("template", "--chat-template", "chatml", "--date", "2026-02-30"), 1,
                          "'2026-02-30' is no date")

    def test_GenerateTakesANamedTemplate(self):
        prompt = self.rendered([{"role": "user", "content": "Hi"}], "--chat-template", "zephyr",
                               "-m", self.model)
        options = ("-m", self.model, "-n", "4", "--temp", "0", "--json", "--ignore-eos")
        asked = run("generate", "--chat", "--chat-template", "zephyr", "-p", "Hi", *options)
        plain = run("generate", "-p", prompt, *options)
        self.assertEqual([line["tokens"] for line in json_lines(asked)],
                         [line["tokens"] for line in json_lines(plain)])


if __name__ == "__main__":
    main()
