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


# Letters of scripts with two cases, as the hub's files of deepseek-llm list them: first and last.
CASED = """
41-5a 61-7a b5-b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f-37f 386-386 388-38a 38c-38c
38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a
1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59-1f59 1f5b-1f5b 1f5d-1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe-1fbe
1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102-2102 2107-2107 210a-2113 2115-2115 2119-211d
2124-2124 2126-2126 2128-2128 212a-212d 212f-2134 2139-2139 213c-213f 2145-2149 214e-214e 2183-2184 2c00-2c7b 2c7e-2ce4
2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a
10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943"""
EAST_ASIAN = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+'


def cased_letters():
    """As they stand between brackets: of two neighbours both, of more the first and the last."""
    text = ''
    for pair in CASED.split():
        first, last = (int(end, 16) for end in pair.split('-'))
        text += chr(first) + ('-' if last > first + 1 else '') + (chr(last) if last > first else '')
    return text


def pre_tokenizer(pre):
    """What the hub's files have where that is a form which kvrm reads; None for any other kind."""
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
    if pre == 'deepseek-llm':
        return sequence(split('[\r\n]'), split(rf'\s?[{cased_letters()}]+'),
                        split('\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+'),
                        split(r'\s+$'), split(EAST_ASIAN), digits, byte_level(False))
    if pre == 'deepseek-coder':
        return sequence(split('[\r\n]'), split(r'\s?\p{L}+'), split(r'\s?\p{P}+'), split(EAST_ASIAN), digits, byte_level(False))
    return None


def reference_pre_tokenizer(pre):
    """The same for kinds that kvrm reads from GGUF files only."""
    if pre == 'falcon':
        return sequence(split(r'[\p{P}$+<=>^~|`]+'), byte_level(True), split('[0-9][0-9][0-9]'))
    return pre_tokenizer(pre)


def merges_by_score(tokens, types, scores):
    """Every way to put a token together from two others, best score first."""
    ids = {token: i for i, token in enumerate(tokens) if types[i] == 1}
    found = []
    for token, i in ids.items():
        for cut in range(1, len(token)):
            if token[:cut] in ids and token[cut:] in ids:
                found.append((-scores[i], i, cut, [token[:cut], token[cut:]]))
    return [merge for *_, merge in sorted(found)]


def by_characters(keys, vocabulary):
    """SentencePiece's kind: ("llama", by scores, or "gemma4", by merges): (normalizer, model)."""
    tokens, prepends = keys['tokenizer.ggml.tokens'], keys['tokenizer.ggml.model'] == 'llama'
    steps = [{'type': 'Prepend', 'prepend': '\u2581'}] if prepends else []
    steps.append({'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\u2581'})
    merges = (merges_by_score(tokens, keys['tokenizer.ggml.token_type'], keys['tokenizer.ggml.scores']) if prepends
              else [merge.split(' ') for merge in keys['tokenizer.ggml.merges']])
    unknown = tokens[keys.get('tokenizer.ggml.unknown_token_id', 0)]
    return {'type': 'Sequence', 'normalizers': steps}, {
        'type': 'BPE', 'unk_token': unknown, 'fuse_unk': True, 'byte_fallback': True, 'vocab': vocabulary, 'merges': merges}


def tokenizer_json(keys, pre_tokenizer_of=pre_tokenizer, models=('gpt2', 'llama')):
    """A vocabulary as the hub writes it; None where it has no form that kvrm reads."""
    tokens, model = keys['tokenizer.ggml.tokens'], keys['tokenizer.ggml.model']
    if model not in models:
        return None
    types = keys.get('tokenizer.ggml.token_type', [1] * len(tokens))
    added = [{'id': i, 'content': token, 'single_word': False, 'lstrip': False, 'rstrip': False,
              'normalized': False, 'special': types[i] == CONTROL}
             for i, token in enumerate(tokens) if types[i] in (CONTROL, USER_DEFINED)]
    vocabulary = {token: i for i, token in enumerate(tokens) if types[i] != UNUSED}
    result = {'version': '1.0', 'added_tokens': added, 'normalizer': None, 'pre_tokenizer': None}
    if model != 'gpt2':
        result['normalizer'], result['model'] = by_characters(keys, vocabulary)
        return result
    pre = keys.get('tokenizer.ggml.pre', '')
    result['pre_tokenizer'] = pre_tokenizer_of(pre)
    if result['pre_tokenizer'] is None:
        return None
    if pre == 'qwen2':
        result['normalizer'] = {'type': 'NFC'}
    merges = [merge.split(' ') for merge in keys['tokenizer.ggml.merges']]
    result['model'] = {'type': 'BPE', 'vocab': vocabulary, 'ignore_merges': pre == 'llama-bpe', 'merges': merges}
    return result


def reference_json(keys):
    """The same for PyPI tokenizers, which reads more kinds; None where it has no form either."""
    return tokenizer_json(keys, reference_pre_tokenizer, ('gpt2', 'llama', 'gemma4'))
