#!/usr/bin/env python3
"""Writes tests/data/tensor/dequant_vectors.bin: random blocks of each readable tensor type with the
values that PyPI gguf's dequantize gives for them.

    python3 -m venv VENV && VENV/bin/pip install gguf==0.19.0
    VENV/bin/python tools/oracle/dequant_vectors.py tests/data/tensor/dequant_vectors.bin

Little-endian records until the end: u32 type, u32 values, u32 block bytes, the blocks, float32 values.
"""
import struct
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

BLOCKS = {T.F32: 256, T.F16: 256, T.BF16: 256, T.Q8_0: 32, T.Q4_0: 32, T.Q4_1: 32, T.Q6_K: 8,
          T.Q5_0: 32, T.Q5_1: 32, T.IQ4_NL: 32, T.Q2_K: 8, T.Q3_K: 8, T.Q4_K: 8, T.Q5_K: 8}
# Byte offsets of the fp16 fields of a block: made finite, with subnormals and both signs among them.
HALVES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q6_K: [208], T.Q5_0: [0],
          T.Q5_1: [0, 2], T.IQ4_NL: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
          T.Q5_K: [0, 2]}
HALF_VALUES = [0.0123, -0.75, 6e-8, -3.05e-5, 1000.0, 0.0, -1.0 / 3, 65504.0]


def blocks_of(rng, kind, count):
    """[count, bytes of a block] random ones; every value that they stand for is finite."""
    _, size = GGML_QUANT_SIZES[kind]
    if kind == T.F32:
        return rng.standard_normal(count, dtype=np.float32).view(np.uint8).reshape(count, 4)
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if kind == T.F16:  # every exponent but that of infinities and NaN
        half = raw.view(np.uint16)
        half[(half & 0x7C00) == 0x7C00] &= 0x83FF
    if kind == T.BF16:
        word = raw.view(np.uint16)
        word[(word & 0x7F80) == 0x7F80] &= 0x807F
    for field, offset in enumerate(HALVES.get(kind, [])):
        halves = rng.integers(0, 1 << 16, count, dtype=np.uint16)
        halves[(halves & 0x7C00) == 0x7C00] &= 0x83FF
        for block in range(0, count, 2):
            halves[block] = np.float16(HALF_VALUES[(block // 2 * 3 + field) % len(HALF_VALUES)]).view(np.uint16)
        raw[:, offset:offset + 2] = halves.view(np.uint8).reshape(count, 2)
    return raw


def main():
    rng = np.random.default_rng(3)
    with open(sys.argv[1], "wb") as out:
        for kind, count in BLOCKS.items():
            blocks = blocks_of(rng, kind, count)
            if kind == T.F32:
                values = blocks.view(np.float32).reshape(-1)
            else:
                values = dequantize(blocks, kind).astype(np.float32).reshape(-1)
            out.write(struct.pack("<III", int(kind), values.size, blocks.size))
            out.write(blocks.tobytes())
            out.write(values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
