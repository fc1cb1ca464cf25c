"""Differential test: the same tokenizer.json read by `kvrm tokenize` and by PyPI tokenizers. Half the
strings are mutations of test vectors and of WikiText, the others random; at least 30 % hold
characters beyond ASCII, 1 % are 64 KB or longer, 5 % hold an added token.

The files are made from a folder's GGUF vocabularies: the same tokens and merges, written as the hub
writes them. A kind that kvrm reads from GGUF files only is read from there. With --plant two merge
ranks of the reference are swapped, and the check must find it: it then fails when it does not,
within --strings.

usage: check_tokenizers.py KVRM FOLDER [--strings N] [--seed S] [--plant] [--only NAME] [--texts FILE...]
  --strings   for each vocabulary
"""
import argparse
import collections
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
BATCH = 20_000  # strings a run of the program


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


def make_string(rng, seeds, added):
    kind = rng.random()
    if kind < 0.01:
        unit = random_text(rng, rng.randint(1, 400))
        return unit * (LONG // len(unit.encode()) + 1)
    text = mutated(rng, rng.choice(seeds)) if kind < 0.51 else random_text(rng, rng.randint(0, 60))
    if added and rng.random() < 0.05:
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(added) + text[place:]
    return text


def seeds_of(folder, files):
    seeds = [text for path in folder.glob('*.gguf.inp')
             for text in path.read_bytes().decode().split('\n__ggml_vocab_test__\n') if text]
    for file in files:
        seeds += [line for line in pathlib.Path(file).read_text(encoding='utf-8').split('\n') if line.strip()]
    return seeds


def rivals(merges):
    """Pairs of ranks whose merges compete for a token, "x y" and "y z", and the text "xyz": those of
    the commonest merges, nearest ranks first."""
    beginning, ending = collections.defaultdict(list), collections.defaultdict(list)
    for at, (left, right) in enumerate(merges):
        beginning[left].append(at)
        ending[right].append(at)
    found = []
    for at, (left, right) in enumerate(merges[:3000]):
        found += [(other - at, at, other, left + right + merges[other][1]) for other in beginning[right] if other > at]
        found += [(other - at, at, other, merges[other][0] + left + right) for other in ending[left] if other > at]
    return sorted(found)


def plant(definition, seeds):
    """Swaps two ranks that decide how one seed in fifty is cut. Returns them, None = nowhere."""
    merges = definition['model']['merges']
    blank = '\u2581' if definition['model'].get('byte_fallback') else '\u0120'
    written = {text: blank + text.replace(' ', blank) for text in seeds}
    corpus = '\n'.join(written.values())
    reference = tokenizers.Tokenizer.from_str(json.dumps(definition))
    pairs = rivals(merges)[:5000]
    often = {joined: corpus.count(joined) for _, _, _, joined in pairs}
    shown = sorted((pair for pair in pairs if often[pair[3]] > 0), key=lambda pair: -often[pair[3]])
    for _, at, other, joined in shown[:100]:
        probes = [text for text, form in written.items() if joined in form]
        merges[at], merges[other] = merges[other], merges[at]
        planted = tokenizers.Tokenizer.from_str(json.dumps(definition))
        differ = sum(planted.encode(text).ids != reference.encode(text).ids for text in probes)
        if 50 * differ >= len(seeds):  # so that some of 1,000 mutated seeds show it
            return at, other
        merges[at], merges[other] = merges[other], merges[at]
    return None


def compare(kvrm, model, reference, strings):
    run = subprocess.run([kvrm, 'tokenize', '-m', str(model), '--json-lines'], capture_output=True,
                         input=''.join(json.dumps(text) + '\n' for text in strings).encode(), check=False)
    if run.returncode != 0:
        return [(None, run.stderr.decode().strip(), None)]
    got = [json.loads(line) for line in run.stdout.decode().splitlines()]
    want = [encoding.ids for encoding in reference.encode_batch(strings, add_special_tokens=False)]
    return [(text, ids, other) for text, ids, other in zip(strings, got, want, strict=True) if ids != other]


def compare_all(args, name, model, reference, swapped, added, seeds):
    """Returns whether this vocabulary passes."""
    rng = random.Random(args.seed)
    done = beyond_ascii = long = 0
    while done < args.strings:
        strings = [make_string(rng, seeds, added) for _ in range(min(1000 if args.plant else BATCH, args.strings - done))]
        wrong = compare(args.kvrm, model, reference, strings)
        done += len(strings)
        beyond_ascii += sum(not text.isascii() for text in strings)
        long += sum(len(text.encode()) >= LONG for text in strings)
        if not wrong:
            continue
        if args.plant:
            at = strings.index(wrong[0][0]) + done - len(strings) + 1
            print(f'found    {name}: the swapped ranks {swapped[0]} and {swapped[1]}, at string {at}', flush=True)
            return True
        text, got, want = wrong[0]
        print(f'DIFFERS  {name}: {len(wrong)} of {len(strings)}\n{text!r:.2000}\ngot  {got!s:.2000}\nwant {want!s:.2000}')
        return False
    if args.plant:
        print(f'MISSED   {name}: the swapped ranks {swapped[0]} and {swapped[1]}, in {done} strings')
        return False
    source = 'GGUF' if model.suffix == '.gguf' else 'tokenizer.json'
    print(f'equal    {name}: {done} strings, {100 * beyond_ascii / done:.0f} % beyond ASCII, '
          f'{100 * long / done:.1f} % long; from {source}', flush=True)
    return 10 * beyond_ascii >= 3 * done and (done < 1000 or long * 200 >= done)


def check(args, path, seeds):
    """Whether this vocabulary passes; None where neither side knows its kind."""
    name = path.stem.removeprefix('ggml-vocab-')
    keys = gguf_vocabulary.read_metadata(path)
    definition = gguf_vocabulary.reference_json(keys)
    if definition is None:
        print(f'skipped  {name}: no form of tokenizer.json is known for it')
        return None
    hub = gguf_vocabulary.tokenizer_json(keys)
    with tempfile.TemporaryDirectory() as work:
        model = path
        if hub is not None:
            model = pathlib.Path(work)
            (model / 'tokenizer.json').write_text(json.dumps(hub), encoding='utf-8')
        swapped = plant(definition, seeds) if args.plant else ()
        if swapped is None:
            print(f'BROKE    {name}: no swap changed a seed')
            return False
        reference = tokenizers.Tokenizer.from_str(json.dumps(definition))
        added = [token['content'] for token in definition['added_tokens']]
        return compare_all(args, name, model, reference, swapped, added, seeds)


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
    results = [result for path in paths if (result := check(args, path, seeds)) is not None]
    print(f'tokenizers: {sum(results)} of {len(results)} vocabularies pass')
    return 0 if results and all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
