"""Holds `kvrm tokenize` against the vectors of a folder: NAME.gguf with NAME.gguf.inp (texts, each
with a line __ggml_vocab_test__ behind it) and NAME.gguf.out (a line of ids for each text). Each
vocabulary is read twice, from the arrays of its file and written as the hub's tokenizer.json, where
that has a form for it.

usage: check_vectors.py KVRM FOLDER [--with NAME MODEL LINES] [--json FILE]
  --with   one more: a GGUF file and lines of JSON with "text" and "ids"
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf_vocabulary

SEPARATOR = '\n__ggml_vocab_test__\n'
NOT_OFFERED = r'tokenizer\.ggml\.(model|pre).* is not supported; known: '


def pairs_beside(path):
    texts = pathlib.Path(f'{path}.inp').read_bytes().decode().removesuffix(SEPARATOR).split(SEPARATOR)
    wanted = pathlib.Path(f'{path}.out').read_text().split('\n')
    return [(text, [int(word) for word in ids.split()]) for text, ids in zip(texts, wanted)]


def pairs_of_lines(path):
    lines = [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines()]
    return [(line['text'], line['ids']) for line in lines]


def wrong_of(kvrm, model, pairs):
    """The pairs with other ids, each with those that it got; a message where the model is refused."""
    run = subprocess.run([kvrm, 'tokenize', '-m', str(model), '--json-lines'], capture_output=True, check=False,
                         input=''.join(json.dumps(text) + '\n' for text, _ in pairs).encode())
    if run.returncode != 0:
        return run.stderr.decode().strip()
    got = [json.loads(line) for line in run.stdout.decode().splitlines()]
    return [(pair, ids) for pair, ids in zip(pairs, got, strict=True) if pair[1] != ids]


def check(kvrm, name, path, pairs):
    """Returns (verdict, detail, row of the table)."""
    sources = {'gguf': wrong_of(kvrm, path, pairs)}
    if isinstance(sources['gguf'], str):
        refused = re.search(NOT_OFFERED, sources['gguf'])
        return ('refused' if refused else 'BROKE'), sources['gguf'], None
    keys = gguf_vocabulary.read_metadata(path)
    definition = gguf_vocabulary.tokenizer_json(keys)
    if definition is not None:
        with tempfile.TemporaryDirectory() as work:
            (pathlib.Path(work) / 'tokenizer.json').write_text(json.dumps(definition), encoding='utf-8')
            sources['tokenizer.json'] = wrong_of(kvrm, work, pairs)
    row = {'kind': keys['tokenizer.ggml.pre'] if keys['tokenizer.ggml.model'] == 'gpt2' else keys['tokenizer.ggml.model']}
    for source, wrong in sources.items():
        if isinstance(wrong, str):
            return 'BROKE', f'{source}: {wrong}', None
        row[source] = [len(pairs) - len(wrong), len(pairs)]
        for (text, want), ids in wrong[:2]:
            print(f'--- {name}, {source}: {text!r}\nwant {want}\ngot  {ids}')
    detail = ', '.join(f'{source} {row[source][0]} of {row[source][1]}' for source in sources)
    return ('DIFFERS' if any(sources.values()) else 'equal'), detail, row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kvrm')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--with', dest='more', nargs=3, action='append', default=[], metavar=('NAME', 'MODEL', 'LINES'))
    parser.add_argument('--json', type=pathlib.Path, metavar='FILE', help='the counts, for tools/models-table')
    args = parser.parse_args()
    jobs = [(path.stem.removeprefix('ggml-vocab-'), path, pairs_beside(path)) for path in sorted(args.folder.glob('*.gguf'))
            if pathlib.Path(f'{path}.out').exists()]
    jobs += [(name, pathlib.Path(model), pairs_of_lines(pathlib.Path(lines))) for name, model, lines in args.more]
    counts, rows = {}, {}
    for name, path, pairs in jobs:
        verdict, detail, row = check(args.kvrm, name, path, pairs)
        counts[verdict] = counts.get(verdict, 0) + 1
        if row is not None:
            rows[name] = row
        print(f'{verdict:8} {name}: {detail}')
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows), encoding='utf-8')
    print('vocabularies: ' + ', '.join(f'{number} {verdict}' for verdict, number in sorted(counts.items())))
    return 0 if set(counts) <= {'equal', 'refused'} and counts.get('equal', 0) > 0 else 1


if __name__ == '__main__':
    sys.exit(main())
