#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/jinja_text.h"

namespace kvrm {
namespace {

const std::vector<ChatMessage> kMessages = {
    {"system", "Be brief."}, {"user", "  Hi \u00e9\n"}, {"assistant", "a,b,,c"}};

// What `source` prints for kMessages, or "error: " and the message.
std::string Rendered(std::string_view source) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return "refused: " + parsed.error().message;
  const RenderOptions options{.bos_token = "<s>", .eos_token = "</s>", .now = 0};
  const auto pieces = (*parsed)->Render(kMessages, options);
  return pieces.ok() ? JoinPieces(*pieces) : "error: " + pieces.error().message;
}

struct Case {
  const char* source;
  const char* expected;
};

void ExpectCases(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(Rendered(c.source), c.expected) << c.source;
}

// Expected texts of this file's tables that end without error were confirmed with jinja2 3.1
// (trim_blocks and lstrip_blocks on, tojson as json.dumps with ensure_ascii off).

TEST(Jinja, TrimsWhiteSpaceAroundTags) {
  ExpectCases({
      {"a\n  {% if true %}\n b\n  {% endif %}\n c", "a\n b\n c"},
      {"a {% if true %} b {% endif %} c", "a  b  c"},
      {"a \n {%- if true -%} \n b {%- endif -%} \n c", "abc"},
      {"a\n  {%+ if true +%}\n b{% endif %}", "a\n  \n b"},
      {"a\n  {# note #}\nb", "a\nb"},
      {"a\n  {{ 'x' }}\n b", "a\n  x\n b"},
      {"a \n {{- 'x' -}} \n b", "axb"},
      {"  {% if true %}x{% endif %}", "x"},
      {"x\n", "x"},
      {"x\r\ny\rz\n\n", "x\ny\nz\n"},
      {"{#- gone -#}  y", "y"},
      {"{% if true %}\n\nx{% endif %}", "\nx"},
      {"{ a } {{ '{{' }} %}", "{ a } {{ %}"},
  });
}

TEST(Jinja, BindsOperatorsAsJinjaDoes) {
  ExpectCases({
      {"{{ 1 + 2 - 3 + 10 % 4 }}", "2"},
      {"{{ -7 % 3 }},{{ 7 % -3 }},{{ -7 % -3 }}", "2,-2,-1"},
      {"{{ 'a' ~ 1 + 2 ~ 'b' }}", "a12b"},
      {"{{ 'a' ~ 1 ~ none ~ true }}", "a1NoneTrue"},
      {"{{ not 1 == 2 and 3 > 2 or false }}", "True"},
      {"{{ not false and false }}", "False"},
      {"{{ 1 if false else 2 if false else 3 }}", "3"},
      {"[{{ 1 if false }}]", "[]"},
      {"{{ 'x' + ' y '|trim + 'z' }}", "xyz"},
      {"{{ -1|string + 'a' }}", "-1a"},
      {"{{ 1 in [1, 2] }},{{ 3 not in [1, 2] }},{{ 'b' in 'abc' }},{{ 'role' in messages[0] }}",
       "True,True,True,True"},
      {"{{ 'a' 'b' \"c\" }}", "abc"},
      {"{{ true == 1 }},{{ '1' == 1 }},{{ [1, 'a'] == [1, 'a'] }},{{ {'a': 1} == {'a': 2} }}",
       "True,False,True,False"},
      {"{{ 'a' < 'b' }},{{ 2 >= 3 }}", "True,False"},
      {"{{ none or 'x' }},{{ 0 or '' or 'y' }},{{ 'a' and 'b' }}", "x,y,b"},
      {"{{ '\\x41\\u00e9\\U0001F642\\n\\q\\'' }}", "A\u00e9\U0001F642\n\\q'"},
  });
}

TEST(Jinja, IndexesAndSlicesAsPythonDoes) {
  ExpectCases({
      {"{{ messages[0].role }},{{ messages[-1]['role'] }}", "system,assistant"},
      {"[{{ messages[9] }}],[{{ messages[0].nothing }}]", "[],[]"},
      {"{% for m in messages[1:] %}{{ m.role }} {% endfor %}", "user assistant "},
      {"{% for m in messages[::-1] %}{{ m.role }} {% endfor %}", "assistant user system "},
      {"{{ 'h\u00e9llo'[1] }},{{ 'h\u00e9llo'[1:3] }},{{ 'h\u00e9llo'[-2:] }},{{ 'abc'[::-1] }}",
       "\u00e9,\u00e9l,lo,cba"},
      {"{{ 'abcdef'[4:1:-2] }},{{ 'abcdef'[-100:2] }},{{ 'abcdef'[100:] }}|", "ec,ab,|"},
      {"{{ 'abcdef'[:-100] }}|{{ 'abcdef'[::9223372036854775807] }}|", "|a|"},
      {"{{ {'a': {'b': 7}}.a.b }}", "7"},
  });
}

TEST(Jinja, LoopsKeepTheirVariablesToThemselves) {
  ExpectCases({
      {"{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}"
       "{{ loop.length }}{{ loop.revindex }} {% endfor %}",
       "10TrueFalse33 21FalseFalse32 32FalseTrue31 "},
      {"{% set x = 'out' %}{% for i in [1] %}{% set x = 'in' %}{% endfor %}{{ x }}", "out"},
      {"{% for i in [1, 2] %}{% if i == 2 %}[{{ x }}]{% endif %}{% set x = i %}{% endfor %}", "[]"},
      {"{% set ns = namespace(n=0) %}{% for i in [1, 2, 3] %}{% set ns.n = ns.n + i %}{% endfor %}"
       "{{ ns.n }}",
       "6"},
      {"{% for i in [] %}a{% else %}none{% endfor %}", "none"},
      {"{% for i in range(6) if i is even %}{{ i }}/{{ loop.length }} {% endfor %}",
       "0/3 2/3 4/3 "},
      {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}"
       "{{ i }}{% endfor %}",
       "023"},
      {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"},
      {"{% for k, v in {'a': 1}|items %}{{ k }}={{ v }};{% endfor %}", "a=1;"},
      {"{% for c in 'h\u00e9' %}{{ c }}.{% endfor %}", "h.\u00e9."},
      {"{% for x in [1,2] %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
       "<1>2 1<2> "},
      {"{% for x in nothing %}x{% endfor %}", ""},
      {"{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}", "321"},
      {"{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
  });
}

TEST(Jinja, MacrosSeeTheTemplateAndTheirArguments) {
  ExpectCases({
      {"{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }},{{ m(1, 2) }},{{ m(b=3, a=4) "
       "}}",
       "1B,12,43"},
      {"{% set g = 'G' %}{% macro m() %}{{ g }}{{ l }}{% endmacro %}"
       "{% for l in [1] %}{{ m() }}{% endfor %}",
       "G"},
      {"{% set x %}a{{ 1 + 1 }}{% endset %}[{{ x }}]", "[a2]"},
      {"{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
       "54321"},
  });
}

TEST(Jinja, FiltersTestsAndMethodsDoAsPythonDoes) {
  ExpectCases({
      {"[{{ messages[1].content | trim }}]", "[Hi \u00e9]"},
      {"[{{ x | trim }}][{{ 7 | trim }}][{{ none | upper }}]", "[][7][NONE]"},
      {"{{ messages | length }},{{ 'h\u00e9'|length }},{{ {'a': 1}|count }}", "3,2,1"},
      {"{{ {'a': [1, 'x\"\\n\u00e9', true, none], 'b': {}} | tojson }}",
       "{\"a\": [1, \"x\\\"\\n\u00e9\", true, null], \"b\": {}}"},
      {"{{ {'a': [1, 2], 'b': []} | tojson(indent=2) }}",
       "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": []\n}"},
      {"{{ x | default('d') }},{{ '' | default('d') }},{{ '' | default('d', true) }}", "d,,d"},
      {"{{ 'aBc'|upper }},{{ 'aBC\u00c9'|lower }},{{ 'hELLO'|capitalize }}", "ABC,abc\u00e9,Hello"},
      {"{{ 'aaa'|replace('a', 'b') }},{{ 'aaa'|replace('a', 'b', 2) }},{{ 'ab'|replace('', '-') }}",
       "bbb,bba,-a-b-"},
      {"{{ [1, 'a', true]|join(', ') }},{{ 'abc'|join('-') }},{{ [1, 2]|join }}",
       "1, a, True,a-b-c,12"},
      {"{{ [1, 2]|first }},{{ [1, 2]|last }},{{ 'abc'|last }}", "1,2,c"},
      {"{{ 'a,b,,c'.split(',')|join('|') }},{{ ' a  b '.split()|join('|') }},"
       "{{ 'a,b,c'.split(',', 1)|join('|') }}",
       "a|b||c,a|b,a|b,c"},
      {"{{ 'xxaxx'.strip('x') }},{{ 'xxa'.lstrip('x') }},{{ 'a\\n\\n'.rstrip('\\n') }}|", "a,a,a|"},
      {"{{ 'abc'.startswith('ab') }},{{ 'abc'.endswith('bc') }},{{ 'abc'.startswith('x') }}",
       "True,True,False"},
      {"{{ {'a': 1}.get('a') }},{{ {'a': 1}.get('b') }},{{ {'a': 1}.get('b', 2) }}", "1,None,2"},
      {"{{ {'a': 1, 'b': 2}.keys()|join }},{{ {'a': 1, 'b': 2}.values()|join }}", "ab,12"},
      {"{{ x is defined }},{{ x is not defined }},{{ x is undefined }},{{ none is none }}",
       "False,True,True,True"},
      {"{{ 'a' is string }},{{ {} is mapping }},{{ [] is iterable }},{{ 'a' is iterable }},"
       "{{ [] is sequence }},{{ 1 is number }},{{ 1 is integer }},{{ true is boolean }}",
       "True,True,True,True,True,True,True,True"},
      {"{{ 4 is divisibleby 2 }},{{ 3 is odd }},{{ 1 is eq 1 }},{{ 1 is in [1] }},"
       "{{ true is true }},{{ 1 is true }},{{ not x is defined }}",
       "True,True,True,True,True,False,True"},
      {"{{ bos_token }}{{ eos_token }}{{ strftime_now('%d %b %Y') }}{{ strftime_now is defined }}",
       "<s></s>01 Jan 1970True"},
      {"{{ tools is none }},{{ custom_tools is defined }}", "True,False"},
  });
}

TEST(Jinja, NumbersCalculateAndPrintAsPythonDoes) {
  ExpectCases({
      {"{{ 2 * 3 }},{{ 7 / 2 }},{{ 7 // 2 }},{{ -7 // 2 }},{{ -7 % 3 }},{{ 7.5 // 2 }}",
       "6,3.5,3,-4,2,3.0"},
      {"{{ 1.5 + 1 }},{{ 0.1 + 0.2 }},{{ true + 1 }},{{ 1 / 3 }}",
       "2.5,0.30000000000000004,2,0.3333333333333333"},
      {"{{ 10000000000.0 * 1000000.0 }},{{ 1.0 / 100000 }},{{ 1.0 / 1000 }},{{ 100.0 }}",
       "1e+16,1e-05,0.001,100.0"},
      {"{{ 'ab' * 3 }},{{ [1] * 2 }},{{ 'x' * 0 }}|{{ 'x' * -1 }}|", "ababab,[1, 1],||"},
      {"{{ 1 == 1.0 }},{{ 1 < 1.5 }},{{ 2.0 is float }},{{ 1 is float }},{{ true is integer }}",
       "True,True,True,False,False"},
      {"{{ '3.7'|int }},{{ ' 12 '|int }},{{ 'x'|int }},{{ 'x'|int(5) }},{{ 2.9|int }}",
       "3,12,0,5,2"},
      {"{{ -3|abs }},{{ (-3)|abs }}", "3,3"},
  });
}

TEST(Jinja, ListsDictsAndTextPrintAsPythonsRepr) {
  ExpectCases({
      {"{{ [1, 'a', none, true, 1.5] }}", "[1, 'a', None, True, 1.5]"},
      {"{{ {'a': {'b': []}} }}", "{'a': {'b': []}}"},
      {"{{ ['it\\'s', 'a\"b', 'x\\'\"'] }}", "[\"it's\", 'a\"b', 'x\\'\"']"},
      {"{{ ['\\n\\t\\\\', '\u00e9', '\u200b', '\u00a0', '\x7f'] }}",
       "['\\n\\t\\\\', '\u00e9', '\\u200b', '\\xa0', '\\x7f']"},
      {"{{ (1, 2) }},{{ (1,) }},{{ () }}", "(1, 2),(1,),()"},
      {"{{ {'a': 1}.items()|list }}", "[('a', 1)]"},
      {"{{ [1, 2] ~ 'x' }},{{ {'k': 'v'}|string }}", "[1, 2]x,{'k': 'v'}"},
  });
}

TEST(Jinja, FiltersThatPickAndOrder) {
  const std::string list = "{% set l = [{'n': 'b', 't': 1}, {'n': 'A', 't': 2}, {'n': 'c'}] %}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{{ l|map(attribute='n')|join(',') }}", "b,A,c"},
      {"{{ l|map(attribute='t', default=0)|list }}", "[1, 2, 0]"},
      {"{{ ['a', 'b']|map('upper')|join }}", "AB"},
      {"{{ ['a', 'b']|map('replace', 'a', 'x')|join }}", "xb"},
      {"{{ l|selectattr('t')|map(attribute='n')|join }}", "bA"},
      {"{{ l|selectattr('t', 'defined')|list|length }}", "2"},
      {"{{ l|rejectattr('t', 'equalto', 2)|map(attribute='n')|join }}", "bc"},
      {"{{ [1, 0, 2]|select|list }},{{ [1, 2, 3]|reject('odd')|list }}", "[1, 2],[2]"},
      {"{{ none|select('string')|list }}", "[]"},
      {"{{ l|sort(attribute='n')|map(attribute='n')|join }}", "Abc"},
      {"{{ ['b', 'A', 'a']|sort }},{{ ['b', 'A']|sort(case_sensitive=true) }}",
       "['A', 'a', 'b'],['A', 'b']"},
      {"{{ [3, 1, 2]|sort(reverse=true) }},{{ [3, 1, 2]|min }},{{ [3, 1, 2]|max }}",
       "[3, 2, 1],1,3"},
      {"{{ ['a', 'A', 'b']|unique|list }},{{ [1, 2, 1]|unique|list }}", "['a', 'b'],[1, 2]"},
      {"{{ {'b': 1, 'a': 2}|dictsort }},{{ {'b': 1, 'a': 2}|dictsort(by='value') }}",
       "[('a', 2), ('b', 1)],[('b', 1), ('a', 2)]"},
      {"{{ [1, 2]|reverse|list }},{{ 'ab'|reverse }}", "[2, 1],ba"},
      {"{% if []|map('upper') %}a generator is true{% endif %}", "a generator is true"},
      {"{{ 'a\nb\n\nc'|indent(2) }}", "a\n  b\n\n  c"},
      {"{{ 'a\nb\n'|indent(1, true) }}|", " a\n b\n|"},
      {"{{ {'b': 1, 'a': '\u00e9'}|tojson(ensure_ascii=true, sort_keys=true) }}",
       "{\"a\": \"\\u00e9\", \"b\": 1}"},
      {"{{ [1, 2]|tojson(separators=(',', ':')) }}", "[1,2]"},
      {"{{ ('<b>'|safe) + '<i>' }},{{ ('<b>'|safe) ~ '<i>' }}", "<b>&lt;i&gt;,<b><i>"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(Rendered(list + source), expected);
}

TEST(Jinja, BlocksCaptureFilterAndScope) {
  ExpectCases({
      {"{% set x %} a {{ 1 }} {% endset %}[{{ x }}]", "[ a 1 ]"},
      {"{% set x | trim | upper %} a {% endset %}[{{ x }}]", "[A]"},
      {"{% filter upper %}a{% set y = 1 %}{% endfilter %}{{ y is defined }}", "AFalse"},
      {"{% generation %}a{% set y = 1 %}{% endgeneration %}{{ y is defined }}", "aFalse"},
      {"{% set a, b = (1, 2) %}{{ a }}{{ b }}{% set c, d = 3, 4 %}{{ c }}{{ d }}", "1234"},
      {"{% set t = 1, 2 %}{{ t }}", "(1, 2)"},
  });
}

// jinja2 looks an attribute up on Python's own type first: there `items` is a method.
TEST(Jinja, AMethodsNameHidesTheKeyOfThatName) {
  ExpectCases({
      {"{{ {'items': 1}['items'] }}", "1"},
      {"{% if {}.items %}a method is true{% endif %}", "a method is true"},
      {"{{ {}.items is string }},{{ {}.items is defined }},{{ {}.other is defined }}",
       "False,True,False"},
  });
}

TEST(Jinja, TextMethodsDoAsPythonsDo) {
  ExpectCases({
      {"{{ ', '.join(['a', 'b']) }},{{ 'aXbX'.count('X') }},{{ 'h\u00e9x'.find('x') }}",
       "a, b,2,2"},
      {"{{ 'abc'.removeprefix('a') }},{{ 'abc'.removesuffix('c') }},{{ 'abc'.removeprefix('b') }}",
       "bc,ab,abc"},
      {"{{ 'a\r\nb\nc'.splitlines() }},{{ 'a{}{{}}'.format(1) }}", "['a', 'b', 'c'],a1{}"},
  });
}

TEST(Jinja, WhatIsNotOfferedIsRefusedAtLoadByNameAndLine) {
  ExpectCases({
      {"a\n{% include 'x' %}",
       "refused: chat template, line 2: statement \"include\" is not supported"},
      {"{{ x | tojosn }}", "refused: chat template, line 1: filter \"tojosn\" is not supported"},
      {"{{ x is prime }}", "refused: chat template, line 1: test \"prime\" is not supported"},
      {"\n\n{{ x.title() }}", "refused: chat template, line 3: method \"title\" is not supported"},
      {"{{ f(1) }}", "refused: chat template, line 1: function \"f\" is not supported"},
      {"{{ 2 ** 3 }}", "refused: chat template, line 1: operator \"**\" is not supported"},
      {"{{ 1e5 }}",
       "refused: chat template, line 1: a number with an exponent or in another base is not "
       "supported"},
      {"{{ {1: 2} }}",
       "refused: chat template, line 1: a dict key of type integer is not supported"},
      {"{{ x|map('nosuch') }}",
       "refused: chat template, line 1: filter \"nosuch\" is not supported"},
      {"{{ x|select('nosuch') }}",
       "refused: chat template, line 1: test \"nosuch\" is not supported"},
      {"{{ x|select(y) }}",
       "refused: chat template, line 1: filter \"select\" with a computed name is not supported"},
      {"{% call f() %}{% endcall %}",
       "refused: chat template, line 1: statement \"call\" is not supported"},
      {"{{ 1 < 2 < 3 }}",
       "refused: chat template, line 1: a chain of comparisons (a < b < c) is not supported"},
      {"{% for x in y recursive %}{% endfor %}",
       "refused: chat template, line 1: a recursive loop is not supported"},
      {"{{ x|tojson(default=1) }}",
       "refused: chat template, line 1: filter \"tojson\" with argument default is not supported"},
      {"{{ [1][0](2) }}",
       "refused: chat template, line 1: a call of something that is no name is not supported"},
      {"{{ 99999999999999999999 }}",
       "refused: chat template, line 1: an integer over 64 bits is not supported"},
  });
}

TEST(Jinja, BrokenSourceIsRefusedWithItsLine) {
  ExpectCases({
      {"a\n{{ x", "refused: chat template, line 2: {{ without }}"},
      {"{% if x", "refused: chat template, line 1: {% without %}"},
      {"\n{# x", "refused: chat template, line 2: {# without #}"},
      {"{{ 'x }}", "refused: chat template, line 1: a string without its closing quote"},
      {"{% if x %}a", "refused: chat template, line 1: a block without {% endif %}"},
      {"{% endif %}", "refused: chat template, line 1: {% endif %} closes nothing"},
      {"{% if a %}{% else %}{% else %}{% endif %}",
       "refused: chat template, line 1: {% else %} closes nothing"},
      {"{{ }}", "refused: chat template, line 1: expected an expression, found }}"},
      {"{{ a b }}", "refused: chat template, line 1: expected }}, found \"b\""},
      {"{{ a[ }}", "refused: chat template, line 1: {{ without }}"},
      {"{{ a @ b }}", "refused: chat template, line 1: unexpected character \"@\""},
      {"{% break %}", "refused: chat template, line 1: {% break %} outside a loop"},
      {"{{ 'a'|replace('b') }}",
       "refused: chat template, line 1: filter \"replace\" lacks an argument"},
  });
}

TEST(Jinja, ErrorsAtWorkNameTheLine) {
  ExpectCases({
      {"\n{{ raise_exception('No\\nway') }}", "error: chat template, line 2: No\\nway"},
      {"{{ nothing.x }}", "error: chat template, line 1: what is asked for \"x\" is undefined"},
      {"{{ 'a' + 1 }}", "error: chat template, line 1: operator + between a string and a integer"},
      {"{{ namespace() }}", "error: chat template, line 1: a namespace has no text of its own"},
      {"{{ [1].append(2) }}",
       "error: chat template, line 1: a template cannot change a list or dict"},
      {"{{ [1]|map('string')|tojson }}",
       "error: chat template, line 1: tojson: what select, map, unique or items gives; add |list"},
      {"{{ [1, 'a']|sort }}",
       "error: chat template, line 1: operator <, <=, > or >= between a integer and a string"},
      {"{{ 1 // 0 }}", "error: chat template, line 1: operator //: division by zero"},
      {"{{ '{0}'.format(1) }}",
       "error: chat template, line 1: format: only {} for each argument is offered"},
      {"{{ 1 % 0 }}", "error: chat template, line 1: operator %: division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "error: chat template, line 1: operator +: over 64 bits"},
      {"{% for a in 1 %}{% endfor %}",
       "error: chat template, line 1: a integer cannot be iterated over"},
      {"{% for a, b in [1] %}{% endfor %}",
       "error: chat template, line 1: cannot unpack a integer into 2 variables"},
      {"{% set x = 1 %}{% set x.y = 2 %}",
       "error: chat template, line 1: set x.y: x is no namespace"},
      {"{{ x.y|trim }}{{ [1]|trim }}",
       "error: chat template, line 1: what is asked for \"y\" is undefined"},
      {"{{ [1].strip() }}", "error: chat template, line 1: trim: a list where a string is wanted"},
  });
}

TEST(Jinja, WorkAndSizeAreBounded) {
  const std::string steps = "error: chat template, line 1: rendering takes over 1000000 steps";
  EXPECT_EQ(
      Rendered("{% for i in range(2000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}"),
      steps);
  EXPECT_EQ(Rendered("{% for i in range(9999999999) %}{% endfor %}"), steps);
  EXPECT_EQ(Rendered("{% set b = range(100000)|list %}{% for i in range(1000) %}"
                     "{% set c = b|list %}{% endfor %}"),
            steps);
  EXPECT_EQ(Rendered("{{ ([range(100000)|list] * 100000)|map('list')|list|length }}"), steps);
  const std::string doubling =
      "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}";
  EXPECT_EQ(Rendered(doubling), "error: chat template, line 1: a text of over 8388608 bytes");
  EXPECT_NE(Rendered("{% set ns = namespace(l=[1]) %}{% for i in range(40) %}"
                     "{% set ns.l = ns.l + ns.l %}{% endfor %}")
                .find("over 1000000 steps"),
            std::string::npos);
  EXPECT_EQ(Rendered("{% set ns = namespace(l=[]) %}{% for i in range(100) %}"
                     "{% set ns.l = [ns.l] %}{% endfor %}"),
            "error: chat template, line 1: lists and dicts are nested deeper than 32 levels");
  EXPECT_EQ(Rendered("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
            "error: chat template, line 1: evaluation deeper than 600 levels");
  EXPECT_EQ(Rendered("{% set ns = namespace() %}{% set ns.me = ns %}"),
            "error: chat template, line 1: a namespace cannot hold a namespace");
  EXPECT_EQ(Rendered("{% set ns = namespace() %}{% set ns.me = [ns] %}"),
            "error: chat template, line 1: a list or dict cannot hold a namespace");
  // Text that grows within one filter, by indentation, by replacement; a search that would compare
  // megabytes at each of millions of places.
  EXPECT_NE(
      Rendered("{{ ([[[[[[[[range(150000)|list]]]]]]]])|tojson(indent=16) }}").find("error: "),
      std::string::npos);
  const std::string mebibyte =
      "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(16) %}"
      "{% set ns.s = ns.s + ns.s %}{% endfor %}";
  EXPECT_EQ(Rendered(mebibyte + "{{ ns.s|length }}"), "1048576");
  EXPECT_EQ(Rendered(mebibyte + "{{ ns.s|replace('a', ns.s)|length }}"),
            "error: chat template, line 1: replace: the text may grow over 8388608 bytes");
  EXPECT_EQ(Rendered("{{ 'ab' * 9000000 }}"),
            "error: chat template, line 1: a text of over 8388608 bytes");
  EXPECT_EQ(Rendered("{{ ([1] * 2000000)|length }}"), steps);
  EXPECT_EQ(Rendered(mebibyte + "{{ (ns.s[:400000] + 'b') in ns.s }}"), steps);
  EXPECT_EQ(Rendered(mebibyte + "{{ ns.s.split(ns.s[:400000] + 'b')|length }}"), steps);
}

TEST(Jinja, NestingIsBounded) {
  const auto repeat = [](const std::string& text, size_t count) {
    std::string all;
    for (size_t i = 0; i < count; ++i) all += text;
    return all;
  };
  EXPECT_EQ(Rendered("{{ " + repeat("(", 40) + "1" + repeat(")", 40) + " }}"), "1");
  for (const std::string& source :
       {"{{ " + repeat("(", 50'000) + "1" + repeat(")", 50'000) + " }}",
        "{{ " + repeat("[", 50'000) + repeat("]", 50'000) + " }}",
        "{{ " + repeat("not ", 50'000) + "1 }}", "{{ " + repeat("- ", 50'000) + "1 }}",
        repeat("{% if x %}", 50'000), "{{ " + repeat("a if b else ", 50'000) + "1 }}"}) {
    EXPECT_EQ(
        Rendered(source),
        "refused: chat template, line 1: brackets and blocks are nested deeper than 48 levels");
  }
  for (const std::string unit : {" + a", ".a", "|trim", "[0]", " and a"}) {
    EXPECT_EQ(Rendered("{{ a" + repeat(unit, 50'000) + " }}"),
              "refused: chat template, line 1: an expression of over 200 operators in a row");
  }
  EXPECT_EQ(Rendered(std::string((size_t{1} << 20) + 1, 'x')),
            "refused: chat template: 1048577 bytes; at most 1048576 are allowed");
}

// The marks of user text, through everything that handles text.
TEST(JinjaText, MarksSurviveEveryTransformation) {
  using jinja::Text;
  Text text("ab", /*from_user=*/false);
  text.Append(" CD ", /*from_user=*/true);
  text.Append("ef", /*from_user=*/false);
  const auto marks = [](const Text& t) {
    std::string shown;
    for (size_t i = 0; i < t.size(); ++i) shown += t.FromUserAt(i) ? 'u' : '.';
    return shown;
  };
  EXPECT_EQ(marks(text), "..uuuu..");
  EXPECT_EQ(text.runs().size(), 3u);
  EXPECT_EQ(marks(text.Slice(1, 4)), ".uu");
  EXPECT_EQ(marks(text.Slice(3, 3)), "");
  EXPECT_EQ(marks(ChangeCase(text, jinja::LetterCase::kLower)), "..uuuu..");
  EXPECT_EQ(marks(Strip(text.Slice(2, 6), jinja::Sides::kBoth)), "uu");
  const std::vector<Text> parts = Split(text, " ", 0);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(marks(parts[1]), "uu");
  EXPECT_EQ(marks(Replace(text, "C", Text("xyz"), -1)), "..u...uu..");
  EXPECT_EQ(marks(Replace(text, "b C", Text("xyz", /*from_user=*/true), -1)), ".uuuuu..");
}

}  // namespace
}  // namespace kvrm
