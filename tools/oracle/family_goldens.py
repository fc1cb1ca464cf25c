#!/usr/bin/env python3
"""Writes tests/data/golden/<family>/: a tiny seeded model of each family with what PyPI transformers
computes from it in float32.

    python3 -m venv VENV && VENV/bin/pip install torch==2.7.1 transformers==5.24.0 gguf==0.19.0
    VENV/bin/python tools/oracle/family_goldens.py tests/data/golden [FAMILY ..]

Each folder holds the model twice, with the same values: config.json + model*.safetensors (bf16) and
model.gguf (f16 matrices, f32 vectors; key and tensor names, row order of q and k, and norms as GGUF
files of the family have them). golden.json: ids of prompt and greedy continuation, the versions that made it.
logits.bin: float32 [positions, vocab], little endian, of all ids but the last.
"""
import argparse
import json
import math
import pathlib

import gguf
import torch
import transformers
from safetensors.torch import save_file

PROMPT, NEW, VOCAB = 40, 64, 72
COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_attention_heads=2,
              num_key_value_heads=1, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5,
              bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=True)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", factor=4.0)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
WINDOW = 24

# What differs from COMMON; `gguf`: general.architecture; `old_keys`: config.json as most files on
# the hub have it (rope_theta, rope_scaling), else as this version of transformers writes it.
FAMILIES = {
    "llama": dict(gguf="llama", old_keys=True, num_hidden_layers=3, rope_theta=10000.0,
                  rope_scaling=LLAMA3),
    "llama_linear": dict(gguf="llama", model_type="llama", old_keys=True, num_hidden_layers=3, rope_theta=10000.0,
                         rope_scaling=LINEAR),
    "mistral": dict(gguf="llama", num_hidden_layers=3, num_attention_heads=4,
                    num_key_value_heads=2, rope_theta=10000.0, sliding_window=WINDOW,
                    tie_word_embeddings=False),
    "qwen2": dict(gguf="qwen2", old_keys=True, num_hidden_layers=3, rope_theta=1e6,
                  tie_word_embeddings=False, use_sliding_window=False),
    "qwen2_yarn": dict(gguf="qwen2", model_type="qwen2", old_keys=True, num_hidden_layers=3,
                       rope_theta=10000.0, rope_scaling=YARN, use_sliding_window=False),
    "qwen3": dict(gguf="qwen3", num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, rope_theta=1e6, use_sliding_window=False),
    "smollm3": dict(gguf="smollm3", num_hidden_layers=5, rope_theta=5e6,
                    use_sliding_window=False),
    "gemma2": dict(gguf="gemma2", old_keys=True, num_hidden_layers=4, rope_theta=10000.0,
                   sliding_window=WINDOW, query_pre_attn_scalar=16, attn_logit_softcapping=2.0,
                   final_logit_softcapping=1.5, hidden_activation="gelu_pytorch_tanh"),
    "gemma3": dict(gguf="gemma3", model_type="gemma3_text", num_hidden_layers=7,
                   rope_theta=1e6, rope_local_base_freq=10000.0, sliding_window=WINDOW,
                   query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh"),
}
SHARDED = {"qwen2"}  # two files and an index


def rounded(values):
    """Values that bf16 and f16 both hold."""
    values = values.to(torch.bfloat16).to(torch.float32)
    return torch.where(values.abs() < 2.0**-13, torch.zeros_like(values), values)


def make_model(family, seed):
    spec = {**COMMON, **FAMILIES[family]}
    old_keys = spec.pop("old_keys", False)
    arch = spec.pop("gguf")
    model_type = spec.pop("model_type", family)
    config = transformers.AutoConfig.for_model(model_type, **spec)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    less_one = family.startswith("gemma")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                value = (0.0 if less_one else 1.0) + 0.25 * noise
            elif name.endswith("bias"):
                value = 0.5 * noise
            elif "embed" in name:
                value = (0.1 if less_one else 1.0) * noise
            else:
                value = 1.5 * noise / math.sqrt(parameter.shape[-1])
            parameter.copy_(rounded(value))
    return model, config, arch, old_keys, {**spec, "model_type": model_type}


def greedy(model, ids):
    """The continuation and the least gap between first and second choice."""
    ids, gap = list(ids), math.inf
    for _ in range(NEW):
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        best = torch.topk(logits, 2).values
        gap = min(gap, float(best[0] - best[1]))
        ids.append(int(torch.argmax(logits)))
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0]
    return ids, gap, logits


def interleaved(weight, heads):
    """Rows of each head from halves (i, i + d/2) to pairs (2i, 2i + 1), as llama's GGUF files."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)


LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
TOP_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}


def gguf_name(name, family):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    names = dict(LAYER_NAMES)
    if family.startswith("gemma"):
        names.update({"post_attention_layernorm.weight": "post_attention_norm.weight",
                      "pre_feedforward_layernorm.weight": "ffn_norm.weight",
                      "post_feedforward_layernorm.weight": "post_ffw_norm.weight"})
    else:
        names["post_attention_layernorm.weight"] = "ffn_norm.weight"
    return f"blk.{layer}.{names[rest]}"


def llama3_factors(spec):
    scaling, dims = spec["rope_scaling"], spec["head_dim"]
    original = scaling["original_max_position_embeddings"]
    low, high = (original / scaling[key] for key in ("low_freq_factor", "high_freq_factor"))
    factors = []
    for i in range(dims // 2):
        wavelength = 2 * math.pi * spec["rope_theta"] ** (2 * i / dims)
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(scaling["factor"])
        else:
            smooth = (original / wavelength - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return torch.tensor(factors)


def write_keys(writer, family, spec):
    writer.add_name(f"golden-{family}")
    writer.add_block_count(spec["num_hidden_layers"])
    writer.add_context_length(spec["max_position_embeddings"])
    writer.add_embedding_length(spec["hidden_size"])
    writer.add_feed_forward_length(spec["intermediate_size"])
    writer.add_head_count(spec["num_attention_heads"])
    writer.add_head_count_kv(spec["num_key_value_heads"])
    writer.add_key_length(spec["head_dim"])
    writer.add_value_length(spec["head_dim"])
    writer.add_rope_dimension_count(spec["head_dim"])
    writer.add_rope_freq_base(spec["rope_theta"])
    writer.add_layer_norm_rms_eps(spec["rms_norm_eps"])
    scaling = spec.get("rope_scaling", {})
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    if spec.get("sliding_window"):
        writer.add_sliding_window(spec["sliding_window"])
    if spec.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(spec["attn_logit_softcapping"])
    if spec.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(spec["final_logit_softcapping"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"t{i}" for i in range(VOCAB)])
    writer.add_token_types([1] * VOCAB)
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_gguf(path, family, arch, spec, state):
    writer = gguf.GGUFWriter(path, arch)
    write_keys(writer, family, spec)
    if spec.get("rope_scaling", {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(spec).numpy())
    for name, value in state.items():
        if arch in ("llama", "smollm3") and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            value = interleaved(value, spec[heads])
        if family.startswith("gemma") and name.endswith("norm.weight"):
            value = value + 1
        kind = torch.float16 if value.dim() > 1 else torch.float32
        writer.add_tensor(gguf_name(name, family), value.to(kind).contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors(folder, family, config, old_keys, spec, state):
    shards = [dict(state)]
    names = ["model.safetensors"]
    if family in SHARDED:
        keys = list(state)
        shards = [{k: state[k] for k in part} for part in (keys[: len(keys) // 2], keys[len(keys) // 2:])]
        names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
        index = {"metadata": {}, "weight_map": {k: n for n, s in zip(names, shards) for k in s}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    for name, shard in zip(names, shards):
        save_file({k: v.to(torch.bfloat16).contiguous() for k, v in shard.items()}, folder / name,
                  metadata={"format": "pt"})
    written = json.loads(config.to_json_string())
    written["architectures"] = [type(config).__name__.replace("Config", "ForCausalLM")]
    if old_keys:
        written = {**spec, "architectures": written["architectures"], "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")


def write_family(folder, family):
    for seed in range(1, 100):  # one whose choices no rounding can swap
        model, config, arch, old_keys, spec = make_model(family, seed)
        prompt = torch.randint(3, VOCAB, (PROMPT,), generator=torch.Generator().manual_seed(seed))
        ids, gap, logits = greedy(model, prompt.tolist())
        if gap > 1e-3 * float(logits.abs().max()) and len(set(ids[PROMPT:])) > 12:
            break
    else:
        raise SystemExit(f"{family}: no seed gives a clear continuation")
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v for k, v in model.state_dict().items()
             if not (k == "lm_head.weight" and spec["tie_word_embeddings"])}
    write_gguf(folder / "model.gguf", family, arch, spec, state)
    write_safetensors(folder, family, config, old_keys, spec, state)
    (folder / "logits.bin").write_bytes(logits.numpy().astype("<f4").tobytes())
    golden = {"family": family, "seed": seed, "prompt": PROMPT, "ids": ids, "least_gap": gap,
              "max_abs_logit": float(logits.abs().max()), "torch": torch.__version__,
              "transformers": transformers.__version__, "gguf": "0.19.0"}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    print(family, "seed", seed, "gap", gap, "max", golden["max_abs_logit"], "distinct",
          len(set(ids[PROMPT:])))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for family in options.families:
        write_family(options.out / family, family)


if __name__ == "__main__":
    main()
