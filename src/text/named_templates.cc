#include "text/named_templates.h"

#include <algorithm>

namespace kvrm {
namespace {

struct Named {
  std::string_view name;
  std::string_view source;
};

// Families that know no system role put the system message before the first user's. Each template
// opens with what the family's training text opens with, the start token included where it is
// written out.
constexpr Named kTemplates[] = {
    {"chatml", R"({%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%})"},
    {"gemma", R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}
{%- set ns.system = ns.system + m.content + '\n\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
{%- if m.role == 'user' -%}{{ ns.system }}{%- set ns.system = '' -%}{%- endif -%}
{{ (m.content or '') | trim }}{{ '<end_of_turn>\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%})"},
    {"llama2", R"({%- set ns = namespace(system='') -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}
{%- set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' -%}
{%- elif m.role == 'assistant' -%}
{{ ' ' + (m.content or '') | trim + ' ' + eos_token }}
{%- else -%}
{{ bos_token + '[INST] ' }}{{ ns.system }}{{ (m.content or '') | trim }}{{ ' [/INST]' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%})"},
    {"llama3", R"({{- bos_token -}}
{%- for m in messages -%}
{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + (m.content or '') | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%})"},
    {"mistral", R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
{%- if m.role == 'system' -%}
{%- set ns.system = ns.system + m.content + '\n\n' -%}
{%- elif m.role == 'assistant' -%}
{{ ' ' + (m.content or '') | trim + eos_token }}
{%- else -%}
{{ '[INST] ' }}{{ ns.system }}{{ m.content or '' }}{{ ' [/INST]' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%})"},
    {"phi3", R"({%- for m in messages -%}
{{ '<|' + m.role + '|>\n' + (m.content or '') + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})"},
    {"vicuna", R"({%- for m in messages -%}
{%- if m.role == 'system' -%}{{ m.content + '\n\n' }}
{%- elif m.role == 'assistant' -%}{{ 'ASSISTANT: ' + (m.content or '') + eos_token + '\n' }}
{%- else -%}{{ 'USER: ' + (m.content or '') + '\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%})"},
    {"zephyr", R"({%- for m in messages -%}
{{ '<|' + m.role + '|>\n' + (m.content or '') + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%})"},
};

}  // namespace

std::string_view NamedTemplate(std::string_view name) {
  const auto* found = std::ranges::find(kTemplates, name, &Named::name);
  return found == std::end(kTemplates) ? std::string_view{} : found->source;
}

std::string NamedTemplateList() {
  std::string list;
  for (const Named& named : kTemplates)
    list += (list.empty() ? "" : ", ") + std::string(named.name);
  return list;
}

}  // namespace kvrm
