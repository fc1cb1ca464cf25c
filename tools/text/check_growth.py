"""Processor time of `kvrm tokenize` on 2n bytes over that on n, for runs of one unit and each
vocabulary of a folder, as a table. Starting and loading is taken off, and n doubles until the text
takes at least half as long as that. Of several rounds of both lengths in turn the least time of each
counts; where the ratio is too large still, there are more rounds: what the machine adds falls away
with them, what grows with the text does not.

usage: check_growth.py KVRM FOLDER [--bytes N] [--rounds N] [--most-rounds N] [--at-most RATIO]
                       [--only NAME] [--with NAME MODEL]
  --with   a vocabulary beside those of the folder
"""
import argparse
import os
import pathlib
import subprocess
import sys

MOST_BYTES = 64 << 20
UNITS = ['a', '_', ' ', '\n', '7', '\u4e2d', '\u0301', 'a\n', 'a ', ' \n']


def seconds(kvrm, model, text):
    """The processor time of one run; None where the model is refused."""
    process = subprocess.Popen([kvrm, 'tokenize', '-m', str(model), '--ids'], stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.stdin.write(text)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime if process.returncode == 0 else None


def repeated(unit, num_bytes):
    unit = unit.encode()
    return unit * (num_bytes // len(unit))


def ratio_of(args, model, start, unit):
    num_bytes = args.bytes
    while seconds(args.kvrm, model, repeated(unit, num_bytes)) < 1.5 * start and num_bytes < MOST_BYTES:
        num_bytes *= 2
    texts = [repeated(unit, count * num_bytes) for count in (1, 2)]
    least = [float('inf')] * 2
    for done in range(1, args.most_rounds + 1):
        least = [min(before, seconds(args.kvrm, model, text)) for before, text in zip(least, texts, strict=True)]
        ratio = (least[1] - start) / (least[0] - start)
        if done >= args.rounds and ratio <= args.at_most:
            break
    return ratio


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kvrm')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--bytes', type=int, default=4 << 20)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--most-rounds', type=int, default=15)
    parser.add_argument('--at-most', type=float, default=2.3)
    parser.add_argument('--only', default='')
    parser.add_argument('--with', dest='beside', nargs=2, action='append', default=[])
    args = parser.parse_args()
    worst, measured = 0.0, 0
    print('| vocabulary | ' + ' | '.join(f'`{unit!a}`' for unit in UNITS) + ' |\n' + '|---' * (len(UNITS) + 1) + '|')
    models = {path.stem.removeprefix('ggml-vocab-'): path for path in args.folder.glob('*.gguf')} | dict(args.beside)
    for name, path in sorted(models.items()):
        if args.only not in name:
            continue
        starts = [seconds(args.kvrm, path, b'') for _ in range(args.rounds)]
        if None in starts:
            continue
        ratios = [ratio_of(args, path, min(starts), unit) for unit in UNITS]
        measured += 1
        worst = max(worst, *ratios)
        print(f'| {name} | ' + ' | '.join(f'{ratio:.2f}' for ratio in ratios) + ' |', flush=True)
    print(f'\ngrowth: {measured} vocabularies, t(2n)/t(n) at most {worst:.2f} for n = {args.bytes} bytes')
    return 0 if measured > 0 and worst <= args.at_most else 1


if __name__ == '__main__':
    sys.exit(main())
