"""A tokenizer of one token a byte, as a folder that PyPI's `transformers` loads: for load generators
that want a tokenizer to make prompts with, whatever the model's is."""

import json

END = "<|end|>"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def byte_characters():
    """For each byte the character that stands for it: itself where it prints, else from U+0100 on."""
    printing = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printing else next(others)) for byte in range(256)]


def write(folder):
    vocabulary = {character: number for number, character in enumerate(byte_characters())}
    end = {"id": len(vocabulary), "content": END, "special": True, "normalized": False,
           "single_word": False, "lstrip": False, "rstrip": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
                 "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                 "decoder": byte_level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None,
                           "continuing_subword_prefix": None, "end_of_word_suffix": None,
                           "fuse_unk": False, "byte_fallback": False,
                           "vocab": {**vocabulary, END: end["id"]}, "merges": []}}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE,
                "bos_token": END, "eos_token": END, "pad_token": END, "unk_token": END,
                "model_max_length": 8192}
    for name, value in (("tokenizer", tokenizer), ("tokenizer_config", settings),
                        ("config", {"model_type": "llama"})):
        (folder / f"{name}.json").write_text(json.dumps(value))
