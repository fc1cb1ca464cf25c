"""Processor time of tokenizing 2n bytes over that of n, for runs of one unit and each vocabulary of a
folder, as a table of every ratio. The vocabulary is loaded once; of --rounds rounds of both lengths in
turn the least time of each counts. How many rounds there are does not depend on what they gave.

usage: check_growth.py PROGRAM FOLDER [--bytes N] [--rounds N] [--at-most RATIO] [--only NAME]
                       [--with NAME MODEL] [--text FILE]
  PROGRAM  tokenizer_growth
  --with   a vocabulary beside those of the folder
  --text   a text whose speed is shown too
"""
import argparse
import pathlib
import re
import subprocess
import sys

UNITS = ['a', '_', ' ', '\n', '7', '\u4e2d', '\u0301', 'a\n', 'a ', ' \n']
NOT_OFFERED = r'is not supported; known: '


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--bytes', type=int, default=1 << 20)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--at-most', type=float, default=2.3)
    parser.add_argument('--only', default='')
    parser.add_argument('--with', dest='beside', nargs=2, action='append', default=[], metavar=('NAME', 'MODEL'))
    parser.add_argument('--text', metavar='FILE')
    args = parser.parse_args()
    texts = [f'@{args.text}'] if args.text else []
    columns = [f'`{unit!a}`' for unit in UNITS] + ['text, MB/s'] * len(texts)
    worst, measured, broke = 0.0, 0, False
    print('| vocabulary | ' + ' | '.join(columns) + ' |\n' + '|---' * (len(columns) + 1) + '|')
    models = {path.stem.removeprefix('ggml-vocab-'): path for path in args.folder.glob('*.gguf')} | dict(args.beside)
    for name, path in sorted(models.items()):
        if args.only not in name:
            continue
        run = subprocess.run([args.program, str(path), str(args.bytes), str(args.rounds), *UNITS, *texts],
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            broke = broke or not re.search(NOT_OFFERED, run.stderr)
            print(f'{name}: {run.stderr.strip()}', file=sys.stderr)
            continue
        rows = [[int(word) for word in line.split()] for line in run.stdout.splitlines()]
        ratios = [twice / once for _, once, twice in rows[:len(UNITS)]]
        speeds = [1000 * count / once for count, once, _ in rows[len(UNITS):]]
        measured += 1
        worst = max(worst, *ratios)
        cells = [f'{ratio:.2f}' for ratio in ratios] + [f'{speed:.1f}' for speed in speeds]
        print(f'| {name} | ' + ' | '.join(cells) + ' |', flush=True)
    print(f'\ngrowth: {measured} vocabularies, t(2n)/t(n) at most {worst:.2f} for n = {args.bytes} bytes')
    return 0 if measured > 0 and not broke and worst <= args.at_most else 1


if __name__ == '__main__':
    sys.exit(main())
