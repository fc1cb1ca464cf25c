"""Holds `kvrm template` against jinja2 (sandboxed, as the hub's tokenizers set it up): each template
of a folder either renders equal on all conversations, or is refused at load with construct and line.

usage: check_templates.py KVRM FOLDER [--conversations N] [--seed S] [--at-least PERCENT] [--show N]
                          [--json FILE]
"""
import argparse
import collections
import datetime
import json
import pathlib
import re
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

import conversations

DAY = datetime.datetime(2026, 11, 30)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks text for training; renders as what is in it."""
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(('name:endgeneration',), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = DAY.strftime
    return env


def render(template, conversation):
    variables = {'tools': None, 'documents': None, 'bos_token': '', 'eos_token': '', **conversation}
    try:
        return template.render(**variables)
    except Exception as error:  # whatever it is: the reference does not render this
        return error


def ours(kvrm, path, lines):
    run = subprocess.run([kvrm, 'template', '--chat-template', str(path), '--json-lines', '--date', DAY.strftime('%Y-%m-%d')],
                         input=lines.encode(), capture_output=True)
    if run.returncode != 0:
        return run.stderr.decode().strip()
    return [json.loads(line) for line in run.stdout.decode().split('\n') if line]


def check(kvrm, env, path, made, lines, show):
    """Returns (verdict, detail)."""
    got = ours(kvrm, path, lines)
    if isinstance(got, str):
        named = re.search(r'chat template, (line \d+: .* is not supported)$', got)
        return ('refused', named[1]) if named else ('CRASH', got)
    template = env.from_string(path.read_text(encoding='utf-8'))
    wrong, rendered = [], 0
    for conversation, answer in zip(made, got, strict=True):
        want = render(template, conversation)
        if isinstance(want, Exception):
            if 'error' not in answer:
                wrong.append((conversation, f'{type(want).__name__}: {want}', answer['text']))
        elif answer.get('text') != want:
            wrong.append((conversation, want, answer))
        else:
            rendered += 1
    for conversation, want, answer in wrong[:show]:
        print(f'--- {path.name}\n{json.dumps(conversation, ensure_ascii=False)}\nwant {want!r}\ngot  {answer!r}')
    if wrong:
        return 'DIFFERS', f'{len(wrong)} of {len(made)} conversations'
    if rendered == 0:
        return 'DIFFERS', 'no conversation was rendered by either side: nothing is compared'
    return 'equal', f'{rendered} rendered, {len(made) - rendered} refused by both'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('kvrm')
    parser.add_argument('folder', type=pathlib.Path)
    parser.add_argument('--conversations', type=int, default=200)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--at-least', type=float, default=90.0)
    parser.add_argument('--show', type=int, default=1)
    parser.add_argument('--json', type=pathlib.Path, metavar='FILE', help='the verdicts, for tools/models-table')
    args = parser.parse_args()
    made = [conversations.make_conversation(args.seed * 1_000_000 + i) for i in range(args.conversations)]
    lines = ''.join(json.dumps(c, ensure_ascii=False) + '\n' for c in made)
    env = environment()
    counts, rows = collections.Counter(), {}
    for path in sorted(args.folder.glob('*.jinja')):
        verdict, detail = check(args.kvrm, env, path, made, lines, args.show)
        counts[verdict] += 1
        rows[path.stem] = {'verdict': verdict, 'detail': detail}
        print(f'{verdict:8} {path.stem}: {detail}')
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(rows, ensure_ascii=False), encoding='utf-8')
    total = sum(counts.values())
    share = 100.0 * counts['equal'] / max(total, 1)
    print(f'templates: {counts["equal"]} of {total} render equal ({share:.0f} %), {counts["refused"]} refused by name and line, '
          f'{counts["DIFFERS"]} differ, {counts["CRASH"]} broke')
    bad = counts['DIFFERS'] + counts['CRASH']
    return 0 if total > 0 and bad == 0 and share >= args.at_least else 1


if __name__ == '__main__':
    sys.exit(main())
