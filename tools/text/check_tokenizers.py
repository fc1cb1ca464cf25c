"""Differential test: the same tokenizer.json read by `kvrm tokenize` and by PyPI tokenizers. Of each
hundred strings 50 are mutations of test vectors and of --texts, 49 are random and one is 64 KB or
longer, made of either; at least 30 % hold characters beyond ASCII, 5 % an added token. A run whose
strings are otherwise fails, however short it is.

The files are made from a folder's GGUF vocabularies: the same tokens and merges, written as the hub
writes them. A kind that kvrm reads from GGUF files only is read from there. With --plant two merge
ranks of the reference are swapped, and the check must find it: it then fails when it does not,
within --strings.

usage: check_tokenizers.py KVRM FOLDER [--strings N] [--seed S] [--plant] [--only NAME] [--share K/N]
                           [--texts FILE...] [--with NAME MODEL] [--hub NAME FILE]
  --strings   for each vocabulary
  --share     of the vocabularies each N-th, from the K-th on
  --with      a vocabulary beside those of the folder
  --hub       a tokenizer.json as somebody published it; where kvrm refuses it, it must name what
"""
import argparse
import collections
import json
import pathlib
import random
import re
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
BATCH, PLANT_BATCH = 20_000, 100  # strings a run of the program


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


def long_string(rng, seeds, of_seeds):
    """One short text again and again, or many mutated ones."""
    parts, size = [], 0
    unit = None if of_seeds else random_text(rng, rng.randint(1, 400))
    while size < LONG:
        parts.append(unit or mutated(rng, rng.choice(rng.choice(seeds))))
        size += len(parts[-1].encode())
    return ''.join(parts)


def make_string(rng, at, seeds, added):
    """The string at place `at` of a run: (text, what it is)."""
    if at % 100 == 98:
        return long_string(rng, seeds, at % 200 == 98), 'long'
    kind = 'mutated' if at % 2 == 1 else 'random'
    text = mutated(rng, rng.choice(rng.choice(seeds))) if kind == 'mutated' else random_text(rng, rng.randint(0, 60))
    if added and rng.random() < 0.05:
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(added) + text[place:]
    return text, kind


def seeds_of(folder, files):
    """Test vectors, and the lines of `files`: lists of texts, none empty."""
    vectors = {text for path in sorted(folder.glob('*.gguf.inp'))
               for text in path.read_bytes().decode().split('\n__ggml_vocab_test__\n') if text}
    lines = [line for file in files
             for line in pathlib.Path(file).read_text(encoding='utf-8').split('\n') if line.strip()]
    return [pool for pool in (sorted(vectors), lines) if pool]


class Shape:
    """What the strings of a run are."""

    def __init__(self):
        self.done = self.beyond_ascii = self.long = self.mutated = 0

    def add(self, made):
        self.done += len(made)
        self.beyond_ascii += sum(not text.isascii() for text, _ in made)
        self.long += sum(len(text.encode()) >= LONG for text, _ in made)
        self.mutated += sum(kind == 'mutated' for _, kind in made)

    def holds(self):
        return (10 * self.beyond_ascii >= 3 * self.done and 100 * self.long >= self.done
                and 2 * self.mutated + 1 >= self.done)

    def __str__(self):
        shares = [(self.mutated, 'mutations'), (self.beyond_ascii, 'beyond ASCII'), (self.long, 'long')]
        return f'{self.done} strings, ' + ', '.join(f'{100 * part / self.done:.1f} % {what}' for part, what in shares)


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
    """Swaps two ranks that decide how one seed in 100 is cut. Returns them, None = nowhere."""
    merges = definition['model']['merges']
    blank = '\u2581' if definition['model'].get('byte_fallback') else '\u0120'
    written = {text: blank + text.replace(' ', blank) for text in seeds}
    corpus = '\n'.join(written.values())
    reference = tokenizers.Tokenizer.from_str(json.dumps(definition))
    pairs = rivals(merges)[:1000]
    often = {joined: corpus.count(joined) for _, _, _, joined in pairs}
    shown = sorted((pair for pair in pairs if often[pair[3]] > 0), key=lambda pair: -often[pair[3]])
    for _, at, other, joined in shown[:100]:
        probes = [text for text, form in written.items() if joined in form]
        merges[at], merges[other] = merges[other], merges[at]
        planted = tokenizers.Tokenizer.from_str(json.dumps(definition))
        differ = sum(planted.encode(text).ids != reference.encode(text).ids for text in probes)
        if 100 * differ >= len(seeds):  # so that some of 500 mutated seeds show it
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
    rng, shape = random.Random(args.seed), Shape()
    while shape.done < args.strings:
        end = min(args.strings, shape.done + (PLANT_BATCH if args.plant else BATCH))
        made = [make_string(rng, at, seeds, added) for at in range(shape.done, end)]
        strings = [text for text, _ in made]
        shape.add(made)
        wrong = compare(args.kvrm, model, reference, strings)
        if not wrong:
            continue
        text, got, want = wrong[0]
        if args.plant and text is not None:
            at = strings.index(text) + shape.done - len(strings) + 1
            print(f'found    {name}: the swapped ranks {swapped[0]} and {swapped[1]}, at string {at}', flush=True)
            return True
        print(f'DIFFERS  {name}: {len(wrong)} of {len(strings)}\n{text!r:.2000}\ngot  {got!s:.2000}\nwant {want!s:.2000}')
        return False
    if args.plant:
        print(f'MISSED   {name}: the swapped ranks {swapped[0]} and {swapped[1]}, in {shape.done} strings')
        return False
    source = 'GGUF' if model.suffix == '.gguf' else 'tokenizer.json'
    print(f'{"equal" if shape.holds() else "SHAPE":8} {name}: {shape}; from {source}', flush=True)
    return shape.holds()


def check(args, name, path, seeds):
    """Whether this vocabulary passes; None where neither side knows its kind."""
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
        swapped = plant(definition, [text for pool in seeds for text in pool]) if args.plant else ()
        if swapped is None:
            print(f'BROKE    {name}: no swap changed a seed')
            return False
        reference = tokenizers.Tokenizer.from_str(json.dumps(definition))
        added = [token['content'] for token in definition['added_tokens']]
        return compare_all(args, name, model, reference, swapped, added, seeds)


def check_hub(args, name, path, seeds):
    """The same for a file that was not made here."""
    if args.plant:
        return None
    run = subprocess.run([args.kvrm, 'tokenize', '-m', str(path.parent), '--json-lines'], input=b'',
                         capture_output=True, check=False)
    if run.returncode != 0:
        said = run.stderr.decode().strip()
        named = re.search(r'tokenizer\.json: .+ is not supported$', said)
        print(f'{"refused" if named else "BROKE":8} {name}: {said}', flush=True)
        return named is not None
    reference = tokenizers.Tokenizer.from_file(str(path))
    added = [token['content'] for token in json.loads(path.read_text(encoding='utf-8'))['added_tokens']]
    return compare_all(args, name, path.parent, reference, (), added, seeds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kvrm')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--strings', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--plant', action='store_true')
    parser.add_argument('--only', default='')
    parser.add_argument('--share', default='1/1', metavar='K/N')
    parser.add_argument('--with', dest='beside', nargs=2, action='append', default=[], metavar=('NAME', 'MODEL'))
    parser.add_argument('--hub', nargs=2, action='append', default=[], metavar=('NAME', 'FILE'))
    parser.add_argument('--texts', nargs='*', default=[])
    args = parser.parse_args()
    if args.plant and args.strings > 1000:
        parser.error('a planted swap must be found within 1,000 strings')
    first, of = map(int, args.share.split('/'))
    seeds = seeds_of(args.folder, args.texts)
    models = {path.stem.removeprefix('ggml-vocab-'): path for path in args.folder.glob('*.gguf')}
    models |= {name: pathlib.Path(model) for name, model in args.beside}
    jobs = [(check, name, models[name]) for name in sorted(models)]
    jobs += [(check_hub, name, pathlib.Path(file)) for name, file in args.hub]
    jobs = [job for job in jobs if args.only in job[1]][first - 1::of]
    results = [result for run, name, path in jobs if (result := run(args, name, path, seeds)) is not None]
    print(f'tokenizers: {sum(results)} of {len(results)} vocabularies pass')
    return 0 if results and all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
