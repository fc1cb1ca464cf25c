"""Holds what kvrm reads of model files to PyPI gguf: each tensor as float32, every bit.

usage: check_weights.py KVRM [MODEL...] [--random BLOCKS] [--seed S]     KVRM: the program tensor_checksums
  --random   a file of so many random blocks of each type that is read, too
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile
import zlib

import gguf
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'oracle'))
import dequant_vectors


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


def write_random(path, blocks, seed):
    """A file of a tensor a type: rows of four blocks (a number is a block of the plain types)."""
    rng = numpy.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, 'llama')
    for kind in dequant_vectors.BLOCKS:
        raw = dequant_vectors.blocks_of(rng, kind, blocks // 4 * 4)
        writer.add_tensor(f'random.{kind.name}', raw.reshape(blocks // 4, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(program, path):
    """Whether each tensor of the file is the same to both."""
    wanted, got = reference(path), read(program, path)
    wrong = [name for name in sorted(wanted.keys() | got.keys()) if wanted.get(name) != got.get(name)]
    for name in wrong[:5]:
        print(f'--- {name}\nwant {wanted.get(name)}\ngot  {got.get(name)}')
    kinds = collections.Counter(kind for kind, _, _ in wanted.values())
    shown = ', '.join(f'{number} {kind}' for kind, number in sorted(kinds.items()))
    values = sum(count for _, count, _ in wanted.values())
    print(f'{"DIFFERS" if wrong else "equal":8} {path.name}: {len(wanted)} tensors ({shown}), {values} values', flush=True)
    return not wrong and bool(wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('models', nargs='*', type=pathlib.Path)
    parser.add_argument('--random', type=int, default=0, metavar='BLOCKS')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    results = [compare(args.program, path) for path in args.models]
    if args.random:
        with tempfile.TemporaryDirectory() as work:
            path = pathlib.Path(work) / f'random_{args.random}_of_seed_{args.seed}.gguf'
            write_random(path, args.random, args.seed)
            results.append(compare(args.program, path))
    return 0 if results and all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
