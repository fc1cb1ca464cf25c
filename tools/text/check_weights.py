"""Holds what kvrm reads of model files to PyPI gguf: each tensor as float32, every bit.

usage: check_weights.py KVRM MODEL...     KVRM: the program tensor_checksums
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import zlib

import gguf
import numpy


def reference(path):
    """{name: (type, number of values, CRC-32 of them as float32)}"""
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        crc = zlib.crc32(numpy.ascontiguousarray(values, dtype='<f4'))
        found[tensor.name] = (tensor.tensor_type.name, values.size, crc)
    return found


def read(program, path):
    lines = subprocess.run([program, str(path)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: (kind, int(count), int(crc, 16)) for name, kind, count, crc in map(str.split, lines)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('models', nargs='+', type=pathlib.Path)
    args = parser.parse_args()
    equal = True
    for path in args.models:
        wanted, got = reference(path), read(args.program, path)
        wrong = [name for name in sorted(wanted.keys() | got.keys()) if wanted.get(name) != got.get(name)]
        for name in wrong[:5]:
            print(f'--- {name}\nwant {wanted.get(name)}\ngot  {got.get(name)}')
        kinds = collections.Counter(kind for kind, _, _ in wanted.values())
        equal = equal and not wrong and bool(wanted)
        shown = ', '.join(f'{number} {kind}' for kind, number in sorted(kinds.items()))
        print(f'{"DIFFERS" if wrong else "equal":8} {path.name}: {len(wanted)} tensors ({shown})', flush=True)
    return 0 if equal else 1


if __name__ == '__main__':
    sys.exit(main())
