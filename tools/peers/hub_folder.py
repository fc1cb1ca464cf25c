"""A GGUF file of the llama family as the folder that hubs have, for engines that read nothing else.

usage: hub_folder.py MODEL.gguf FOLDER

Writes config.json, model.safetensors (F16), tokenizer.json and tokenizer_config.json (with the chat
template). Weights are what the file's blocks stand for, rounded to F16: a block's scale times its
number may need more bits than that has, so the folder is not the file bit by bit. The folder is
complete or not there. Needs PyPI's gguf and safetensors.
"""

import json
import pathlib
import shutil
import sys

import gguf
import numpy
from safetensors.numpy import save_file

CONTROL, USER_DEFINED = 3, 4  # kinds of token in a GGUF file
# What comes before the vocabulary: a GGUF file names it, a folder spells it out.
DIGITS = {"type": "Digits", "individual_digits": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
PRE_TOKENIZERS = {
    "gpt-2": BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [DIGITS, BYTE_LEVEL]},
}
# Tensors of a layer by their names in GGUF files.
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


class Source:
    """A GGUF file: its values by key, its tensors as numbers."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        if self.value("general.architecture") != "llama":
            sys.exit(f"{path}: the family is '{self.value('general.architecture')}', not llama")

    def value(self, key, default=None):
        field = self.reader.get_field(key)
        return default if field is None else field.contents()

    def size(self, key, default=None):
        return self.value("llama." + key, default)

    def tensors(self):
        for tensor in self.reader.tensors:
            yield tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def hub_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.{kind}"
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def halves_apart(weights, heads):
    """GGUF files have the halves of a head's rotation interleaved, folders one after the other."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def weights_of(source):
    heads = source.size("attention.head_count")
    rotated = {"attn_q": heads, "attn_k": source.size("attention.head_count_kv", heads)}
    found = {}
    for name, numbers in source.tensors():
        if name == "rope_freqs.weight":
            sys.exit("a table of rotation factors has no place in the folder that is written here")
        part = name.split(".")[-2]
        if part in rotated:
            numbers = halves_apart(numbers, rotated[part])
        found[hub_name(name)] = numpy.ascontiguousarray(numbers, dtype=numpy.float16)
    return found


def config_of(source, weights, vocab_size):
    heads, width = source.size("attention.head_count"), source.size("embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": source.size("feed_forward_length"),
        "num_hidden_layers": source.size("block_count"), "num_attention_heads": heads,
        "num_key_value_heads": source.size("attention.head_count_kv", heads),
        "head_dim": source.size("attention.key_length", width // heads),
        "max_position_embeddings": source.size("context_length"),
        "rms_norm_eps": float(source.size("attention.layer_norm_rms_epsilon")),
        "rope_theta": float(source.size("rope.freq_base", 10_000.0)),
        "tie_word_embeddings": "lm_head.weight" not in weights, "vocab_size": vocab_size,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float16",
        "bos_token_id": source.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.value("tokenizer.ggml.eos_token_id"),
    }


def tokenizer_of(source, tokens):
    before = source.value("tokenizer.ggml.pre", "gpt-2")
    if source.value("tokenizer.ggml.model") != "gpt2" or before not in PRE_TOKENIZERS:
        sys.exit(f"the tokenizer is '{before}', known: {' '.join(PRE_TOKENIZERS)}")
    kinds = source.value("tokenizer.ggml.token_type")
    added = [{"id": number, "content": text, "special": kind == CONTROL, "normalized": False,
              "single_word": False, "lstrip": False, "rstrip": False}
             for number, (text, kind) in enumerate(zip(tokens, kinds))
             if kind in (CONTROL, USER_DEFINED)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "pre_tokenizer": PRE_TOKENIZERS[before], "post_processor": None,
            "decoder": BYTE_LEVEL,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False,
                      "vocab": {text: number for number, text in enumerate(tokens)},
                      "merges": source.value("tokenizer.ggml.merges")}}


def tokenizer_settings(source, tokens):
    settings = {"tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": source.size("context_length"),
                "clean_up_tokenization_spaces": False,
                "add_bos_token": bool(source.value("tokenizer.ggml.add_bos_token", False)),
                "chat_template": source.value("tokenizer.chat_template")}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = source.value(f"tokenizer.ggml.{key}_token_id")
        if number is not None:
            settings[f"{name}_token"] = tokens[number]
    return settings


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    source, folder = Source(sys.argv[1]), pathlib.Path(sys.argv[2])
    tokens = source.value("tokenizer.ggml.tokens")
    weights = weights_of(source)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
    for name, content in (("config", config_of(source, weights, len(tokens))),
                          ("tokenizer", tokenizer_of(source, tokens)),
                          ("tokenizer_config", tokenizer_settings(source, tokens))):
        (part / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n",
                                           encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


if __name__ == "__main__":
    main()
