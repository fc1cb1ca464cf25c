"""A GGUF vocabulary written as the hub's tokenizer.json, so that PyPI tokenizers can read it."""
import struct

NUMBERS = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}
STRING, ARRAY = 8, 9
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5

LLAMA3_LIKE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{numbers}| ?[^\s{not_letters}\p{{N}}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def read_metadata(path):
    data = path.read_bytes()
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from('<' + form, data, at)
        at += struct.calcsize('<' + form)
        return value[0]

    def value_of(kind):
        nonlocal at
        if kind == STRING:
            length = take('Q')
            at += length
            return data[at - length:at].decode('utf-8', 'surrogateescape')
        if kind == ARRAY:
            inner, count = take('I'), take('Q')
            return [value_of(inner) for _ in range(count)]
        return take(NUMBERS[kind])

    assert data[:4] == b'GGUF'
    at = 8
    take('Q')
    keys = {}
    for _ in range(take('Q')):
        name = value_of(STRING)
        keys[name] = value_of(take('I'))
    return keys


def split(pattern):
    return {'type': 'Split', 'pattern': {'Regex': pattern}, 'behavior': 'Isolated', 'invert': False}


def byte_level(words):
    return {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': words}


def sequence(*steps):
    return {'type': 'Sequence', 'pretokenizers': list(steps)}


def pre_tokenizer(pre):
    digits = {'type': 'Digits', 'individual_digits': True}
    llama3 = {'llama-bpe': (r'\p{L}', r'\p{L}', r'\p{N}{1,3}'), 'qwen2': (r'\p{L}', r'\p{L}', r'\p{N}'),
              'qwen35': (r'[\p{L}\p{M}]', r'\p{L}\p{M}', r'\p{N}')}
    if pre in ('gpt-2', 'mpt'):
        return byte_level(True)
    if pre in ('starcoder', 'refact', 'smollm', 'command-r'):
        return sequence(digits, byte_level(True))
    if pre in llama3:
        letters, not_letters, numbers = llama3[pre]
        return sequence(split(LLAMA3_LIKE.format(letters=letters, not_letters=not_letters, numbers=numbers)), byte_level(False))
    if pre == 'deepseek-coder':
        return sequence(split('[\r\n]'), split(r'\s?\p{L}+'), split(r'\s?\p{P}+'),
                        split('[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+'), digits, byte_level(False))
    return None


def merges_by_score(tokens, types, scores):
    """Every way to put a token together from two others, best score first."""
    ids = {token: i for i, token in enumerate(tokens) if types[i] == 1}
    found = []
    for token, i in ids.items():
        for cut in range(1, len(token)):
            if token[:cut] in ids and token[cut:] in ids:
                found.append((-scores[i], i, cut, [token[:cut], token[cut:]]))
    return [merge for *_, merge in sorted(found)]


def tokenizer_json(path):
    """None where the hub's format has no form that both sides know."""
    keys = read_metadata(path)
    tokens, model = keys['tokenizer.ggml.tokens'], keys['tokenizer.ggml.model']
    types = keys.get('tokenizer.ggml.token_type', [1] * len(tokens))
    added = [{'id': i, 'content': token, 'single_word': False, 'lstrip': False, 'rstrip': False,
              'normalized': False, 'special': types[i] == CONTROL}
             for i, token in enumerate(tokens) if types[i] in (CONTROL, USER_DEFINED)]
    vocabulary = {token: i for i, token in enumerate(tokens) if types[i] != UNUSED}
    result = {'version': '1.0', 'added_tokens': added, 'normalizer': None}
    if model == 'gpt2':
        pre = keys.get('tokenizer.ggml.pre', '')
        result['pre_tokenizer'] = pre_tokenizer(pre)
        if result['pre_tokenizer'] is None:
            return None
        if pre == 'qwen2':
            result['normalizer'] = {'type': 'NFC'}
        merges = [merge.split(' ') for merge in keys['tokenizer.ggml.merges']]
        result['model'] = {'type': 'BPE', 'vocab': vocabulary, 'ignore_merges': pre == 'llama-bpe', 'merges': merges}
        return result
    if model != 'llama':
        return None
    result['normalizer'] = {'type': 'Sequence', 'normalizers': [
        {'type': 'Prepend', 'prepend': '\u2581'}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\u2581'}]}
    result['pre_tokenizer'] = None
    result['model'] = {'type': 'BPE', 'unk_token': tokens[0], 'fuse_unk': True, 'byte_fallback': True, 'vocab': vocabulary,
                       'merges': merges_by_score(tokens, types, keys['tokenizer.ggml.scores'])}
    return result
