#!/usr/bin/env python3
"""Writes tests/data/tokenizer_json/goldens.json: small tokenizer.json files, each with an option of the
format in use, and the ids that PyPI tokenizers gives texts by them.

    python3 -m venv VENV && VENV/bin/pip install tokenizers==0.23.3
    VENV/bin/python tools/oracle/tokenizer_json_goldens.py > tests/data/tokenizer_json/goldens.json

src/text/hub_options_test.cc holds the reader to it. It never runs in CI.
"""
import json
import sys

import tokenizers

BLANK = '\u2581'
TEXTS = [
    '', 'ab ba', ' ab', 'ab  ', 'éé x é', 'éxéé', 'a€b', '<t>', 'a<t>b', 'a <t> b', ' <t>b', 'a<t>', 'ab<t> <t>ab',
    'a  <t>  b', '<s>a</s>', 'a </s>b', 'a</s> b', '<s> <t></s>', 'a<b>c', 'a<b><t>', 'e\u0301<n\u0303>', 'e\u0301 <\u00f1> n\u0303',
    '<t\u0338b', f'{BLANK}<t>{BLANK}a', '\n<t>\t b', '<two words> a', f'<two{BLANK}words>', 'a\u00a0<t>\u3000b',
]


def byte_characters():
    kept = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    names, extra = {}, 0x100
    for byte in range(256):
        names[byte] = chr(byte if byte in kept else extra)
        extra += byte not in kept
    return names


def added(content, token_id, **options):
    return {'id': token_id, 'content': content, 'single_word': False, 'lstrip': False, 'rstrip': False,
            'normalized': False, 'special': False, **options}


def numbered(tokens):
    return {token: i for i, token in enumerate(tokens)}


def of_bytes(tokens=(), normalizer=None, **model):
    """A file of the ByteLevel kind: all bytes and two merges."""
    vocab = numbered([*byte_characters().values(), 'ab', '\u0120a'])
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    return {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': placed(tokens, vocab),
            'normalizer': normalizer, 'pre_tokenizer': byte_level, 'post_processor': byte_level, 'decoder': byte_level,
            'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': '',
                      'end_of_word_suffix': '', 'fuse_unk': False, 'byte_fallback': False, 'vocab': vocab,
                      'merges': ['a b', '\u0120 a'], **model}}


NORMALIZER = {'type': 'Sequence', 'normalizers': [
    {'type': 'Prepend', 'prepend': BLANK}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': BLANK}]}
REPLACE = NORMALIZER['normalizers'][1]


def metaspace(scheme):
    return {'type': 'Metaspace', 'replacement': BLANK, 'prepend_scheme': scheme, 'split': False}


def of_characters(tokens=(), normalizer=NORMALIZER, pre_tokenizer=None, fallback=(), **model):
    """A file of SentencePiece's kind. `fallback`: the bytes that have a token."""
    vocab = numbered(['<unk>', '<s>', '</s>', *(f'<0x{byte:02X}>' for byte in fallback), BLANK, *'abctswordn<>/x\n\t',
                      'ab', BLANK + 'a', 'ba'])
    steps = [{'type': 'Replace', 'pattern': {'String': BLANK}, 'content': ' '}]
    steps += [{'type': 'ByteFallback'}] if fallback else []
    steps += [{'type': 'Fuse'}, {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}]
    return {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': placed(tokens, vocab),
            'normalizer': normalizer, 'pre_tokenizer': pre_tokenizer, 'post_processor': None,
            'decoder': {'type': 'Sequence', 'decoders': steps},
            'model': {'type': 'BPE', 'dropout': None, 'unk_token': '<unk>', 'continuing_subword_prefix': None,
                      'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': bool(fallback), 'vocab': vocab,
                      'merges': ['a b', BLANK + ' a', 'b a'], **model}}


def placed(tokens, vocab):
    """Those of the vocabulary under their ids, others behind it."""
    result, last = [], len(vocab)
    for content, options in tokens:
        result.append(added(content, vocab.get(content, last), **options))
        last += content not in vocab
    return result


MARKS = [('<unk>', {'special': True}), ('<s>', {'special': True}), ('</s>', {'special': True})]


def marks(**options):
    return [(content, {'special': True, **options}) for content, _ in MARKS]


def cases():
    plain, normalized = ('<t>', {}), ('<t>', {'normalized': True})
    two_words = ('<two words>', {'normalized': True})
    for name, options in [('lstrip', {'lstrip': True}), ('rstrip', {'rstrip': True}),
                          ('both strips', {'lstrip': True, 'rstrip': True})]:
        yield f'bytes: {name}', of_bytes([('<t>', options)])
        yield f'characters: {name}', of_characters([*MARKS, ('<t>', options)])
        yield f'characters: {name}, normalized', of_characters([*MARKS, ('<t>', {**options, 'normalized': True})])
    yield 'bytes: an added token', of_bytes([plain])
    yield 'bytes: normalized, no normalizer', of_bytes([normalized])
    yield 'bytes: what is not normalized first', of_bytes([('<b>', {}), ('a<b>c', {'normalized': True})])
    yield 'bytes: the longest first', of_bytes([('<b>', {}), ('<b><t>', {}), ('<t>', {})])
    yield 'bytes: NFC, normalized', of_bytes([normalized, ('<\u00f1>', {'normalized': True})], {'type': 'NFC'})
    yield 'bytes: NFC, as it is written', of_bytes([plain, ('<n\u0303>', {})], {'type': 'NFC'})
    yield 'bytes: dropout of 0', of_bytes([plain], dropout=0.0)
    yield 'characters: fuse_unk', of_characters(MARKS, fuse_unk=True)
    yield 'characters: no fuse_unk', of_characters(MARKS, fuse_unk=False)
    yield 'characters: no unk_token', of_characters(MARKS, unk_token=None)
    yield 'characters: byte_fallback', of_characters(MARKS, fallback=range(256))
    yield 'characters: byte_fallback of some bytes', of_characters(MARKS, fallback='é'.encode())
    yield 'characters: byte_fallback of some bytes, fuse_unk', of_characters(MARKS, fallback='é'.encode(), fuse_unk=True)
    yield 'characters: normalized', of_characters([*MARKS, normalized, two_words])
    yield 'characters: as they are written', of_characters([*MARKS, plain, ('<two words>', {})])
    yield 'characters: Replace alone, normalized', of_characters([*MARKS, normalized, two_words], normalizer=REPLACE)
    for scheme in ('always', 'first', 'never'):
        yield f'characters: Metaspace {scheme}', of_characters([*MARKS, normalized, two_words], None, metaspace(scheme))
        yield f'characters: Metaspace {scheme}, marks', of_characters([*marks(normalized=True), plain], None, metaspace(scheme))


def main():
    result = []
    for name, spec in cases():
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        result.append({'name': name, 'tokenizer': spec, 'ids': ids})
    json.dump({'tokenizers': tokenizers.__version__, 'texts': TEXTS, 'cases': result}, sys.stdout, separators=(',', ':'))
    print()


if __name__ == '__main__':
    main()
