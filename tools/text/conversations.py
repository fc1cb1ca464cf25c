"""Conversations to render, made from a seed: roles, tools, nulls, Unicode, empties."""
import json
import random

TEXTS = [
    '', ' ', 'Hi', 'What is 2+2?\n', '  padded  ', '\n\nlines\n\nand more\n', 'naïve café 中文 🙂 שלום',
    "it's \"quoted\" \\ back/slash", '<|im_end|>\n<|im_start|>system\nno', '</think>after', '<b>&amp;</b>',
    '<think>secret</think>\n\nThe answer', '{"a": [1, 2.5, null]}', '\u00a0nbsp\u3000', 'e\u0301 combining',
    'tab\tand\r\nCR', '[INST] x [/INST]', '{{ not jinja }}', '%s {} {0}', 'a' * 300, '\u200bzero',
]
NAMES = ['get_weather', 'search', 'python', 'brave_search', 'add', 'wéird_nàme']
PARAMETERS = [
    {},
    {'type': 'object', 'properties': {}},
    {'type': 'object', 'required': ['city'], 'properties': {
        'city': {'type': 'string', 'description': 'The city, e.g. "Zürich"'},
        'unit': {'type': 'string', 'enum': ['C', 'F'], 'description': 'unit', 'default': 'C'}}},
    {'type': 'object', 'required': ['n'], 'properties': {
        'n': {'type': 'integer', 'description': 'how many', 'minimum': 1},
        'deep': {'type': 'object', 'description': 'nested', 'properties': {
            'list': {'type': 'array', 'items': {'type': 'number'}, 'description': 'numbers'},
            'flag': {'type': ['boolean', 'null']}}}}},
]
ARGUMENTS = [
    {}, {'city': 'Zürich'}, {'city': '', 'unit': None}, {'n': 3, 'deep': {'list': [1, 2.5, -1e-7, 1e20], 'flag': True}},
    {'q': "it's \"x\"\n", 'k': 0}, {'x': [], 'y': {}, 'z': False, 'items': [{'a': 1}]},
]


def make_tool(rng):
    function = {'name': rng.choice(NAMES), 'description': rng.choice(TEXTS[2:12]),
                'parameters': rng.choice(PARAMETERS)}
    if rng.random() < 0.2:
        function['strict'] = True
    if rng.random() < 0.1:
        function.pop('description')
    return {'type': 'function', 'function': function}


def make_tool_call(rng, number):
    arguments = rng.choice(ARGUMENTS)
    if rng.random() < 0.3:
        arguments = json.dumps(arguments, ensure_ascii=False)
    call = {'type': 'function', 'function': {'name': rng.choice(NAMES), 'arguments': arguments}}
    if rng.random() < 0.8:
        call['id'] = 'call_%09d' % number if rng.random() < 0.5 else 'abcdefgh%d' % (number % 10)
    return call


def make_content(rng):
    if rng.random() < 0.12:
        return [{'type': 'text', 'text': rng.choice(TEXTS)} for _ in range(rng.randint(0, 3))]
    return rng.choice(TEXTS)


def make_assistant(rng, number, with_tools):
    message = {'role': 'assistant', 'content': make_content(rng)}
    if rng.random() < 0.1:
        message['reasoning_content'] = rng.choice(TEXTS)
    calls = with_tools and rng.random() < 0.6
    if calls:
        message['content'] = rng.choice(['', None, 'I call it.'])
        message['tool_calls'] = [make_tool_call(rng, number + i) for i in range(rng.randint(1, 2))]
    elif rng.random() < 0.05:
        message['content'] = None
    elif rng.random() < 0.1:
        message['tool_calls'] = rng.choice([None, []])
    return message


def make_conversation(seed):
    rng = random.Random(seed)
    tidy = rng.random() < 0.75  # in the order that most templates ask for
    with_tools = rng.random() < 0.45
    messages = []
    if rng.random() < 0.4:
        messages.append({'role': 'system', 'content': make_content(rng)})
    for turn in range(rng.randint(0 if not tidy else 1, 4)):
        if tidy:
            messages.append({'role': 'user', 'content': make_content(rng)})
            if rng.random() < 0.7:
                messages.append(make_assistant(rng, 10 * turn, with_tools))
                for call in messages[-1].get('tool_calls') or []:
                    result = {'role': 'tool', 'content': make_content(rng), 'name': call['function']['name']}
                    if 'id' in call:
                        result['tool_call_id'] = call['id']
                    messages.append(result)
            else:
                break
        else:
            role = rng.choice(['user', 'assistant', 'system', 'tool', 'developer', 'ipython', 'Üser'])
            messages.append(make_assistant(rng, turn, with_tools) if role == 'assistant'
                            else {'role': role, 'content': make_content(rng)})
    conversation = {'messages': messages, 'add_generation_prompt': rng.random() < 0.7,
                    'bos_token': rng.choice(['<s>', '<|begin_of_text|>', '']),
                    'eos_token': rng.choice(['</s>', '<|eot_id|>', ''])}
    if with_tools:
        conversation['tools'] = [make_tool(rng) for _ in range(rng.randint(1, 3))]
    elif rng.random() < 0.1:
        conversation['tools'] = []
    if rng.random() < 0.1:
        conversation['documents'] = [{'title': 'A', 'text': rng.choice(TEXTS)}]
    if rng.random() < 0.5:
        conversation['datetime'] = '2026-11-30'
        conversation['functions'] = '[{"name": "f"}]'
    if rng.random() < 0.2:
        conversation['enable_thinking'] = rng.random() < 0.5
    return conversation
