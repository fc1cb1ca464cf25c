#!/usr/bin/env python3
"""Writes tests/fuzz/gguf/broken, GGUF files that are each wrong in one place, and minimal.gguf beside
it, which is not: named after the check that
refuses them (src/model/broken_gguf_test.cc has its words). NAME.gguf is wrong in its form,
NAME.config.gguf in what it says of a model, NAME.tokenizer.gguf in what it says of a tokenizer,
NAME.load.gguf in what no encoding or page of keys can hold.

    tools/oracle/broken_gguf.py tests/fuzz/gguf/broken
"""
import pathlib
import struct
import sys

U8, I8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 1, 4, 5, 6, 7, 8, 9, 10
PACKED = {U8: "B", I8: "b", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q"}
T_F32, T_F16, T_Q4_0, T_Q8_0, T_MXFP4 = 0, 1, 2, 8, 39
BLOCKS = {T_F32: (1, 4), T_F16: (1, 2), T_Q4_0: (32, 18), T_Q8_0: (32, 34), T_MXFP4: (32, 17)}
WIDTH, FFN = 32, 32  # of the models


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value(kind, content):
    return string(content) if kind == STRING else struct.pack("<" + PACKED[kind], content)


def key(name, kind, content):
    return string(name) + struct.pack("<I", kind) + value(kind, content)


def array(name, kind, items):
    head = struct.pack("<IIQ", ARRAY, kind, len(items))
    return string(name) + head + b"".join(value(kind, item) for item in items)


def entry(name, dims, kind=T_F32, offset=0, num_dims=None):
    count = len(dims) if num_dims is None else num_dims
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, kind, offset)


def header(tensors, keys, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, tensors, keys)


def padded(data, to=32):
    return data + bytes(-len(data) % to)


def whole(keys, tensors=(), begins=None):
    """A file of these keys and tensors: (name, dims, type), whose data is zeros but for the bytes that
    `begins` gives a tensor's beginning."""
    entries, sizes, end = [], b"", 0
    for name, dims, kind in tensors:
        values = 1
        for dim in dims:
            values *= dim
        entries.append(entry(name, dims, kind, end))
        per_block, block_bytes = BLOCKS[kind]
        size = values // per_block * block_bytes
        beginning = (begins or {}).get(name, b"")
        sizes = padded(sizes + beginning + bytes(size - len(beginning)))
        end = len(sizes)
    head = header(len(entries), len(keys)) + b"".join(keys) + b"".join(entries)
    return padded(head) + sizes if entries else head


def one_key(*parts):
    return header(0, 1) + b"".join(parts)


def one_tensor(*parts, data=bytes(64)):
    return padded(header(1, 0) + b"".join(parts)) + data


def forms():
    """Files that are no GGUF, in the order of the parser's checks."""
    number = key("k", U32, 1)
    yield "magic_cut_off", b"GGU"
    yield "magic_of_another_format", b"PK\3\4" + bytes(20)
    yield "version_cut_off", b"GGUF\3"
    yield "version_unknown", header(0, 0, version=1)
    yield "version_big_endian", header(0, 0, version=3 << 24)
    yield "tensor_count_cut_off", b"GGUF\3\0\0\0" + bytes(7)
    yield "key_count_cut_off", b"GGUF\3\0\0\0" + bytes(15)
    yield "key_count_past_the_end", header(0, 10**18)
    yield "tensor_count_past_the_end", header(10**18, 0)
    yield "key_empty", one_key(key("", U32, 1))
    yield "key_too_long", one_key(struct.pack("<Q", 65536), bytes(16))
    yield "key_cut_off", one_key(struct.pack("<Q", 100), b"key of 100 bytes")
    yield "value_type_unknown", one_key(string("k"), struct.pack("<IQ", 13, 0))
    yield "value_cut_off", one_key(string("key"), struct.pack("<IH", U32, 0))
    yield "bool_of_2", one_key(key("k", BOOL, 2))
    yield "string_past_the_end", one_key(string("k"), struct.pack("<IQ", STRING, 2**64 - 1))
    yield "array_type_unknown", one_key(string("k"), struct.pack("<IIQ", ARRAY, 77, 0))
    yield "array_of_arrays", one_key(string("k"), struct.pack("<IIQ", ARRAY, ARRAY, 1), bytes(12))
    yield "array_length_past_the_end", one_key(string("k"), struct.pack("<IIQ", ARRAY, U8, 2**63))
    yield "array_string_cut_off", one_key(string("k"), struct.pack("<IIQQ", ARRAY, STRING, 1, 9), b"text")
    yield "array_number_past_2_63", one_key(array("k", U64, [2**63]))
    yield "alignment_no_unsigned", one_key(key("general.alignment", STRING, "32"))
    yield "alignment_no_power_of_two", one_key(key("general.alignment", U32, 3))
    yield "tensor_name_empty", one_tensor(entry("", [4]))
    yield "tensor_name_too_long", one_tensor(entry("n" * 65, [4]))
    yield "dimensions_none", one_tensor(entry("t", []))
    yield "dimensions_five", one_tensor(entry("t", [1] * 5))
    yield "dimension_0", one_tensor(entry("t", [4, 0]))
    yield "values_past_2_64", one_tensor(entry("t", [2**32, 2**32]))
    yield "tensor_type_unknown", one_tensor(entry("t", [4], 99))
    yield "row_of_no_whole_blocks", one_tensor(entry("t", [33], T_Q8_0))
    yield "offset_unaligned", one_tensor(entry("t", [4], offset=4))
    yield "tensor_cut_off", header(1, 0) + entry("a tensor of a long name", [4])[:-2]
    yield "data_past_the_end", one_tensor(entry("t", [17]))
    yield "data_past_2_64", one_tensor(entry("t", [2**62, 2]))
    yield "tensors_overlap", padded(header(2, 0) + entry("a", [9]) + entry("b", [4], offset=32)) + bytes(64)
    yield "key_twice", header(0, 2) + number + number
    yield "tensor_twice", padded(header(2, 0) + entry("t", [4]) + entry("t", [4], offset=32)) + bytes(64)


def configuration(**changes):
    """The keys of a tiny llama; None takes one away, a pair (type, value) replaces or adds one."""
    keys = {"general.architecture": (STRING, "llama")}
    plain = {"block_count": 1, "embedding_length": WIDTH, "feed_forward_length": FFN, "context_length": 8,
             "attention.head_count": 1}
    keys.update({"llama." + name: (U32, number) for name, number in plain.items()})
    keys["llama.attention.layer_norm_rms_epsilon"] = (F32, 1e-5)
    for name, content in changes.items():
        full = name if name.startswith("general.") else "llama." + name
        keys[full] = content
    return [content if isinstance(content, bytes) else key(name, *content)
            for name, content in keys.items() if content is not None]


def tensors():
    square = [WIDTH, WIDTH]
    found = {"token_embd.weight": ([WIDTH, 1], T_Q8_0), "output_norm.weight": ([WIDTH], T_F32)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        found[f"blk.0.{name}.weight"] = (square, T_Q4_0)
    for name in ("attn_norm", "ffn_norm"):
        found[f"blk.0.{name}.weight"] = ([WIDTH], T_F32)
    for name in ("ffn_gate", "ffn_up"):
        found[f"blk.0.{name}.weight"] = ([WIDTH, FFN], T_Q4_0)
    found["blk.0.ffn_down.weight"] = ([FFN, WIDTH], T_F16)
    return found


def model(changes=(), more_keys=(), begins=None, **added):
    """A tiny llama; `added`: tensors in place of its own or beside them, None takes one away."""
    content = tensors()
    content.update(added)
    listed = [(name, *shape) for name, shape in content.items() if shape is not None]
    return whole([*configuration(**dict(changes)), *more_keys], listed, begins)


def says(**changes):
    """The same where what is wrong shows before any tensor is looked at."""
    return whole(configuration(**changes))


EMBEDDING = "token_embd.weight"


def configurations():
    yield "architecture_missing", says(**{"general.architecture": None})
    yield "architecture_no_string", says(**{"general.architecture": (U32, 1)})
    yield "architecture_unknown", says(**{"general.architecture": (STRING, "mamba")})
    yield "name_no_string", says(**{"general.name": (U32, 1)})
    yield "block_count_missing", says(block_count=None)
    yield "block_count_no_integer", says(block_count=(STRING, "1"))
    yield "block_count_negative", says(block_count=(I32, -1))
    yield "block_count_0", says(block_count=(U32, 0))
    yield "block_count_past_1024", says(block_count=(U32, 1025))
    yield "width_no_multiple_of_16", says(embedding_length=(U32, 24))
    yield "head_count_0", says(**{"attention.head_count": (U32, 0)})
    yield "heads_no_multiple_of_kv_heads", says(**{"attention.head_count": (U32, 4),
                                                   "attention.head_count_kv": (U32, 3)})
    yield "width_no_multiple_of_heads", says(**{"attention.head_count": (U32, 3)})
    yield "value_length_of_its_own", says(**{"attention.value_length": (U32, 16)})
    yield "rope_dimensions_odd", says(**{"rope.dimension_count": (U32, 7)})
    yield "rope_dimensions_past_the_head", says(**{"rope.dimension_count": (U32, 34)})
    yield "epsilon_missing", says(**{"attention.layer_norm_rms_epsilon": None})
    yield "epsilon_no_number", says(**{"attention.layer_norm_rms_epsilon": (STRING, "1")})
    yield "epsilon_0", says(**{"attention.layer_norm_rms_epsilon": (F32, 0.0)})
    yield "rope_base_not_a_number", says(**{"rope.freq_base": (F32, float("nan"))})
    yield "rope_scaling_unknown", says(**{"rope.scaling.type": (STRING, "longrope")})
    yield "rope_attention_factor_without_yarn", says(**{"rope.scaling.attn_factor": (F32, 0.5)})
    yarn = {"rope.scaling.type": (STRING, "yarn"), "rope.scaling.factor": (F32, 4.0)}
    yield "yarn_without_factor", says(**{"rope.scaling.type": (STRING, "yarn")})
    yield "yarn_bands_backwards", says(**yarn, **{"rope.scaling.yarn_beta_fast": (F32, 1.0)})
    yield "yarn_base_1", says(**yarn, **{"rope.freq_base": (F32, 1.0)})
    yield "yarn_by_half", says(**yarn, **{"rope.scaling.yarn_ext_factor": (F32, 0.5)})
    yield "window_1", says(**{"attention.sliding_window": (U32, 1)})
    pattern = "attention.sliding_window_pattern"
    yield "window_pattern_no_number", says(**{pattern: (STRING, "2")})
    rotated = "rope.rotated_layers"
    yield "rotated_layers_no_list", says(**{rotated: (U32, 1)})
    yield "rotated_layers_of_other_layers", says(**{rotated: array("llama." + rotated, BOOL, [1, 0])})
    yield "window_pattern_of_other_layers", says(**{pattern: array("llama." + pattern, BOOL, [1, 0])})
    yield "soft_cap_0", says(attn_logit_softcapping=(F32, 0.0))
    yield "embedding_missing", says()
    yield "vocabulary_of_another_size", model({"vocab_size": (U32, 2)})
    tokens = array("tokenizer.ggml.tokens", STRING, ["a", "b"])
    yield "tokens_of_another_size", whole(configuration() + [tokens], [(EMBEDDING, [WIDTH, 1], T_Q8_0)])
    yield "experts", model({"expert_count": (U32, 8)})
    yield "rope_factors_long", model(**{"rope_factors_long.weight": ([16], T_F32)})
    yield "tensor_missing", model(**{"blk.0.ffn_norm.weight": None})
    yield "tensor_of_another_shape", model(**{"blk.0.attn_q.weight": ([WIDTH, 16], T_Q4_0)})
    yield "tensor_type_not_readable", model(**{"blk.0.attn_q.weight": ([WIDTH, WIDTH], T_MXFP4)})
    yield "tensor_of_another_family", model(**{"blk.0.attn_q.bias": ([WIDTH], T_F32)})
    yield "rope_factor_0", model(**{"rope_freqs.weight": ([16], T_F32)})


def vocabulary(**changes):
    keys = {"model": key("tokenizer.ggml.model", STRING, "gpt2"),
            "pre": key("tokenizer.ggml.pre", STRING, "gpt-2"),
            "tokens": array("tokenizer.ggml.tokens", STRING, ["a", "b"])}
    keys.update(changes)
    return [content for content in keys.values() if content is not None]


def tokenizers():
    def with_key(name, kind, content):
        return whole(vocabulary(more=key("tokenizer." + name, kind, content)))

    def with_array(name, kind, items):
        return whole(vocabulary(more=array("tokenizer.ggml." + name, kind, items)))

    def of_characters(**changes):
        return whole(vocabulary(model=key("tokenizer.ggml.model", STRING, "llama"), pre=None, **changes))

    yield "model_missing", whole(vocabulary(model=None))
    yield "pre_no_string", whole(vocabulary(pre=key("tokenizer.ggml.pre", U32, 1)))
    yield "chat_template_no_string", with_key("chat_template", U32, 1)
    yield "tokens_missing", whole(vocabulary(tokens=None))
    yield "tokens_no_strings", whole(vocabulary(tokens=array("tokenizer.ggml.tokens", U32, [1])))
    yield "tokens_past_the_rows", whole(vocabulary(), [(EMBEDDING, [WIDTH, 1], T_Q8_0)])
    yield "types_no_integers", with_array("token_type", F32, [1.0, 1.0])
    yield "types_of_another_length", with_array("token_type", I32, [1])
    yield "type_unknown", with_array("token_type", I32, [1, 9])
    yield "scores_no_floats", with_array("scores", I32, [1, 1])
    yield "scores_of_another_length", with_array("scores", F32, [1.0])
    yield "score_infinite", with_array("scores", F32, [0.0, float("inf")])
    yield "merges_no_strings", with_array("merges", I32, [1])
    yield "start_token_past_the_tokens", with_key("ggml.bos_token_id", U32, 2)
    yield "start_token_no_integer", with_key("ggml.bos_token_id", STRING, "a")
    yield "flag_no_bool", with_key("ggml.add_bos_token", U32, 1)
    # What the reader takes and no tokenizer can be made of.
    yield "model_unknown", whole(vocabulary(model=key("tokenizer.ggml.model", STRING, "t5")))
    yield "pre_unknown", whole(vocabulary(pre=key("tokenizer.ggml.pre", STRING, "nosuch")))
    yield "token_too_long", whole(vocabulary(tokens=array("tokenizer.ggml.tokens", STRING, ["a" * 2049])))
    yield "merge_no_pair", with_array("merges", STRING, ["ab"])
    yield "merge_unknown", with_array("merges", STRING, ["a c"])
    yield "scores_missing", of_characters()
    yield "byte_token_not_of_a_byte", of_characters(types=array("tokenizer.ggml.token_type", I32, [1, 6]))


def loadable(changes=(), begins=None, **added):
    """The tiny llama with a tokenizer of its one token."""
    tokens = array("tokenizer.ggml.tokens", STRING, ["a"])
    return model(changes, vocabulary(tokens=tokens), begins, **added)


def loads():
    def wide(outputs):  # of the ffn
        tall = {f"blk.0.ffn_{name}.weight": ([WIDTH, outputs], T_Q4_0) for name in ("gate", "up")}
        return {**tall, "blk.0.ffn_down.weight": ([outputs, WIDTH], T_F16)}

    largest = struct.pack("<e", 65504.0)
    yield "outputs_of_no_whole_panel", loadable({"feed_forward_length": (U32, 24)}, **wide(24))
    yield "row_of_no_whole_group", loadable({"feed_forward_length": (U32, 48)}, **wide(48))
    yield "minimum_past_fp16", loadable(begins={"blk.0.attn_q.weight": largest})
    yield "scale_past_fp16", loadable(begins={EMBEDDING: struct.pack("<f", 1e9)}, **{EMBEDDING: ([WIDTH, 1], T_F32)})
    yield "head_length_no_multiple_of_16", loadable({"attention.head_count": (U32, 4)})


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for ending, files in ((".gguf", forms()), (".config.gguf", configurations()),
                          (".tokenizer.gguf", tokenizers()), (".load.gguf", loads())):
        for name, content in files:
            (folder / (name + ending)).write_bytes(content)
    (folder.parent / "minimal.gguf").write_bytes(loadable())  # with nothing wrong


if __name__ == "__main__":
    main()
