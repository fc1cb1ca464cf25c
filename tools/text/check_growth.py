"""Processor time of `kvrm tokenize` on 2n bytes over that on n, for runs of one unit and each
vocabulary of a folder. Starting and loading is taken off; the least of some runs counts.

usage: check_growth.py KVRM FOLDER [--bytes N] [--runs N] [--at-most RATIO] [--only NAME]
"""
import argparse
import os
import pathlib
import subprocess
import sys

UNITS = ['a', '_', ' ', '\n', '7', '\u4e2d', '\u0301', 'a\n', 'a ', ' \n']


def seconds(kvrm, model, text, runs):
    """The least processor time of some runs; None where the model is refused."""
    least = None
    for _ in range(runs):
        process = subprocess.Popen([kvrm, 'tokenize', '-m', str(model), '--ids'], stdin=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.stdin.write(text)
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            return None
        used = usage.ru_utime + usage.ru_stime
        least = used if least is None else min(least, used)
    return least


def repeated(unit, num_bytes):
    unit = unit.encode()
    return unit * (num_bytes // len(unit))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kvrm')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--bytes', type=int, default=4 << 20)
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--at-most', type=float, default=2.3)
    parser.add_argument('--only', default='')
    args = parser.parse_args()
    worst, measured = 0.0, 0
    for path in sorted(path for path in args.folder.glob('*.gguf') if args.only in path.stem):
        start = seconds(args.kvrm, path, b'', args.runs)
        if start is None:
            continue
        ratios = {}
        for unit in UNITS:
            once, twice = (seconds(args.kvrm, path, repeated(unit, count * args.bytes), args.runs) - start for count in (1, 2))
            ratios[unit] = twice / once
        measured += 1
        worst = max(worst, *ratios.values())
        print(f'{path.stem.removeprefix("ggml-vocab-"):15} ' + '  '.join(f'{unit!a} {ratio:.2f}' for unit, ratio in ratios.items()),
              flush=True)
    print(f'growth: {measured} vocabularies, t(2n)/t(n) at most {worst:.2f} for n = {args.bytes} bytes')
    return 0 if measured > 0 and worst <= args.at_most else 1


if __name__ == '__main__':
    sys.exit(main())
