"""A model folder as hubs have it: a tiny seeded llama in safetensors, with a byte-level tokenizer."""

import collections
import json
import math
import random
import struct

from program import ROOT

TOKENIZER = ROOT / "tests" / "data" / "tokenizer_json" / "good_byte_level.json"
Sizes = collections.namedtuple("Sizes", "hidden ffn layers heads vocab context")


def vocab_size():
    tokenizer = json.loads(TOKENIZER.read_text())
    added = [token["id"] for token in tokenizer["added_tokens"]]
    return 1 + max([*tokenizer["model"]["vocab"].values(), *added])


def tiny():
    return Sizes(hidden=64, ffn=64, layers=2, heads=2, vocab=vocab_size(), context=256)


def shapes(sizes):
    """Tensors by their names, outputs first."""
    found = {"model.embed_tokens.weight": [sizes.vocab, sizes.hidden],
             "model.norm.weight": [sizes.hidden]}
    for layer in range(sizes.layers):
        name = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{name}{norm}.weight"] = [sizes.hidden]
        for linear in "qkvo":
            found[f"{name}self_attn.{linear}_proj.weight"] = [sizes.hidden, sizes.hidden]
        for linear in ("gate", "up"):
            found[f"{name}mlp.{linear}_proj.weight"] = [sizes.ffn, sizes.hidden]
        found[f"{name}mlp.down_proj.weight"] = [sizes.hidden, sizes.ffn]
    return found


def write_config(folder, sizes):
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": sizes.hidden, "intermediate_size": sizes.ffn,
        "vocab_size": sizes.vocab, "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads, "num_key_value_heads": sizes.heads,
        "max_position_embeddings": sizes.context, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True}))


def packed(values, dtype):
    if dtype == "BF16":  # the upper halves of floats
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{'e' if dtype == 'F16' else 'f'}", *values)


def write_safetensors(path, tensors, dtype="F32"):
    """`tensors`: {name: (shape, values)}."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        begin = len(data)
        data += packed(values, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_folder(folder, num_files=1, generation=None, dtype=None):
    """Writes the model into `folder`, in one file or several with their index; with a `dtype` its
    values are such as each type holds."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, tiny())
    (folder / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    draw = random.Random(1)
    tensors = {name: (shape, [draw.gauss(0, 0.3) for _ in range(math.prod(shape))])
               for name, shape in shapes(tiny()).items()}
    if dtype is not None:
        tensors = {name: (shape, [max(-127, min(127, round(64 * value))) / 64 for value in values])
                   for name, (shape, values) in tensors.items()}
    if num_files == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype or "F32")
        return
    weight_map = {}
    for number in range(num_files):
        file = f"model-{number + 1:05}-of-{num_files:05}.safetensors"
        part = dict(list(tensors.items())[number::num_files])
        write_safetensors(folder / file, part)
        weight_map.update({name: file for name in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
