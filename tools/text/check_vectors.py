"""Holds `kvrm tokenize` against the vectors of a folder: NAME.gguf with NAME.gguf.inp (texts, each
with a line __ggml_vocab_test__ behind it) and NAME.gguf.out (a line of ids for each text).

usage: check_vectors.py KVRM FOLDER
"""
import json
import pathlib
import re
import subprocess
import sys

SEPARATOR = '\n__ggml_vocab_test__\n'
NOT_OFFERED = r'tokenizer\.ggml\.(model|pre).* is not supported; known: '


def check(kvrm, path):
    """Returns (verdict, detail)."""
    texts = pathlib.Path(f'{path}.inp').read_bytes().decode().split(SEPARATOR)
    wanted = pathlib.Path(f'{path}.out').read_text().split('\n')
    pairs = [(text, [int(word) for word in ids.split()]) for text, ids in zip(texts, wanted)]
    run = subprocess.run([kvrm, 'tokenize', '-m', str(path), '--json-lines'], capture_output=True,
                         input=''.join(json.dumps(text) + '\n' for text, _ in pairs).encode())
    if run.returncode != 0:
        message = run.stderr.decode().strip()
        return ('refused' if re.search(NOT_OFFERED, message) else 'BROKE'), message
    got = [json.loads(line) for line in run.stdout.decode().splitlines()]
    wrong = [(pair, ids) for pair, ids in zip(pairs, got, strict=True) if pair[1] != ids]
    for (text, want), ids in wrong[:2]:
        print(f'--- {path.stem} {text!r}\nwant {want}\ngot  {ids}')
    return ('DIFFERS', f'{len(wrong)} of {len(pairs)}') if wrong else ('equal', f'{len(pairs)} texts')


def main():
    counts = {}
    for path in sorted(pathlib.Path(sys.argv[2]).glob('*.gguf')):
        if not pathlib.Path(f'{path}.out').exists():
            continue
        verdict, detail = check(sys.argv[1], path)
        counts[verdict] = counts.get(verdict, 0) + 1
        print(f'{verdict:8} {path.stem.removeprefix("ggml-vocab-")}: {detail}')
    print('vocabularies: ' + ', '.join(f'{number} {verdict}' for verdict, number in sorted(counts.items())))
    return 0 if set(counts) <= {'equal', 'refused'} and counts.get('equal', 0) > 0 else 1


if __name__ == '__main__':
    sys.exit(main())
