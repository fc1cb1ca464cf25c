"""Differential test: the same tokenizer.json read by `kvrm tokenize` and by PyPI tokenizers. Half the
strings are mutations of test vectors and of WikiText, the others random; at least 30 % hold
characters beyond ASCII, 1 % are 64 KB or longer.

The files are made from a folder's GGUF vocabularies: the same tokens and merges, written as the hub
writes them. With --plant two neighbouring merge ranks of the reference are swapped, and the check
must find it: it then fails when it does not, within --strings.

usage: check_tokenizers.py KVRM FOLDER [--strings N] [--seed S] [--plant] [--only NAME] [--texts FILE...]
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers

import gguf_vocabulary

ALPHABETS = [
    'abcdefghijklmnopqrstuvwxyz', 'ABCxyz  \n\t', '0123456789', ' \u00a0\u3000\u2028\t\r\n',
    '.,;:!?\'"()[]{}<>|/\\@#$%^&*-_=+~`', 'äöüßéèêñçøåœ', 'абвгдежз', '中文字符漢字日本語', 'ひらがなカタカナ',
    '한국어', 'שלום', 'مرحبا', 'हिन्दी', '🙂👍🏽👨‍👩‍👧🇩🇪', '\u0301\u0323\u200b\u200d\ufe0f', '½²³٣४', '\U0010ffff\ue000\u07ca',
]
LONG = 64 * 1024


def random_text(rng, length):
    text = []
    while len(text) < length:
        alphabet = rng.choice(ALPHABETS)
        text += rng.choices(alphabet, k=rng.randint(1, 12))
        if rng.random() < 0.5:
            text.append(rng.choice([' ', ' ', '\n', "'s", "'LL"]))
    return ''.join(text)


def mutated(rng, text):
    characters = list(text[:400])
    for _ in range(rng.randint(1, 6)):
        place = rng.randint(0, len(characters))
        kind = rng.random()
        if kind < 0.4:
            characters[place:place] = list(random_text(rng, rng.randint(1, 4)))
        elif kind < 0.7:
            del characters[place:place + rng.randint(1, 5)]
        else:
            characters[place:place] = characters[:rng.randint(0, 10)] * rng.randint(1, 3)
    return ''.join(characters)


def make_string(rng, seeds):
    kind = rng.random()
    if kind < 0.01:
        unit = random_text(rng, rng.randint(1, 400))
        return unit * (LONG // len(unit.encode()) + 1)
    return mutated(rng, rng.choice(seeds)) if kind < 0.51 else random_text(rng, rng.randint(0, 60))


def seeds_of(folder, files):
    seeds = [text for path in folder.glob('*.gguf.inp')
             for text in path.read_bytes().decode().split('\n__ggml_vocab_test__\n') if text]
    for file in files:
        seeds += [line for line in pathlib.Path(file).read_text(encoding='utf-8').split('\n') if line.strip()]
    return seeds


def plant(definition, seeds):
    """Swaps two neighbouring ranks that decide how a seed is cut. Returns where, None = nowhere."""
    merges = definition['model']['merges']
    reference = tokenizers.Tokenizer.from_str(json.dumps(definition))
    # Only merges that compete for a token can show: "x y" beside "y z".
    rivals = [at for at in range(len(merges) - 1)
              if merges[at][1] == merges[at + 1][0] or merges[at][0] == merges[at + 1][1]]
    for at in rivals[:200]:
        first, second = merges[at], merges[at + 1]
        joined = first[0] + second[0] + second[1] if first[1] == second[0] else second[0] + first[0] + first[1]
        probes = [text for text in seeds if joined in text.replace(' ', '\u0120' if '\u0120' in joined else '\u2581')]
        if not probes:
            continue
        merges[at], merges[at + 1] = second, first
        planted = tokenizers.Tokenizer.from_str(json.dumps(definition))
        if any(planted.encode(text).ids != reference.encode(text).ids for text in probes):
            return at
        merges[at], merges[at + 1] = first, second
    return None


def compare(kvrm, folder, reference, strings):
    run = subprocess.run([kvrm, 'tokenize', '-m', str(folder), '--json-lines'], capture_output=True,
                         input=''.join(json.dumps(text) + '\n' for text in strings).encode(), check=False)
    if run.returncode != 0:
        return [(None, run.stderr.decode().strip(), None)]
    got = [json.loads(line) for line in run.stdout.decode().splitlines()]
    want = [encoding.ids for encoding in reference.encode_batch(strings, add_special_tokens=False)]
    return [(text, ids, other) for text, ids, other in zip(strings, got, want, strict=True) if ids != other]


def check(args, path, seeds):
    """Returns whether this vocabulary passes."""
    name = path.stem.removeprefix('ggml-vocab-')
    definition = gguf_vocabulary.tokenizer_json(path)
    if definition is None:
        print(f'skipped  {name}: no form of tokenizer.json is known for it')
        return True
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as work:
        (pathlib.Path(work) / 'tokenizer.json').write_text(json.dumps(definition), encoding='utf-8')
        if args.plant and plant(definition, seeds) is None:
            print(f'BROKE    {name}: no swap changed a seed')
            return False
        reference = tokenizers.Tokenizer.from_str(json.dumps(definition))
        done = beyond_ascii = long = 0
        while done < args.strings:
            strings = [make_string(rng, seeds) for _ in range(min(1000 if args.plant else 5000, args.strings - done))]
            wrong = compare(args.kvrm, work, reference, strings)
            done += len(strings)
            beyond_ascii += sum(not text.isascii() for text in strings)
            long += sum(len(text.encode()) >= LONG for text in strings)
            if not wrong:
                continue
            text, got, want = wrong[0]
            if args.plant:
                print(f'found    {name}: the swapped ranks, within {done} strings')
                return True
            print(f'DIFFERS  {name}: {len(wrong)} of {len(strings)}\n{text!r}\ngot  {got}\nwant {want}')
            return False
    if args.plant:
        print(f'MISSED   {name}: the swapped ranks, in {done} strings')
        return False
    print(f'equal    {name}: {done} strings, {100 * beyond_ascii / done:.0f} % beyond ASCII, {100 * long / done:.1f} % long')
    return 10 * beyond_ascii >= 3 * done and (done < 1000 or long * 200 >= done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kvrm')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--strings', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--plant', action='store_true')
    parser.add_argument('--only', default='')
    parser.add_argument('--texts', nargs='*', default=[])
    args = parser.parse_args()
    seeds = seeds_of(args.folder, args.texts)
    paths = [path for path in sorted(args.folder.glob('*.gguf')) if args.only in path.stem]
    results = [check(args, path, seeds) for path in paths]
    print(f'tokenizers: {sum(results)} of {len(results)} vocabularies pass')
    return 0 if results and all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
