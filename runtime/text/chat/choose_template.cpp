#include "runtime/text/chat/choose_template.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

constexpr std::string_view kToolTemplate = "tool_use";

std::string names_of(const std::vector<NamedChatTemplate>& templates) {
    std::vector<std::string> names;
    for (const NamedChatTemplate& known : templates) names.push_back(printable(known.name));
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const std::string* find_chat_template(const std::vector<NamedChatTemplate>& templates, std::string_view name) {
    const auto found = std::ranges::find(templates, name, &NamedChatTemplate::name);
    return found == templates.end() ? nullptr : &found->source;
}

std::optional<ChatTemplate> chat_template_of(const std::vector<NamedChatTemplate>& templates, ToolUse tools,
                                             std::string_view wanted) {
    if (templates.empty()) return std::nullopt;
    std::string_view name = wanted.empty() ? kDefaultChatTemplate : wanted;
    if (wanted.empty() && tools == ToolUse::Tools && find_chat_template(templates, kToolTemplate) != nullptr)
        name = kToolTemplate;
    const std::string* text = find_chat_template(templates, name);
    // If no name is wanted and the model has only one template, it is taken whatever its name.
    if (text == nullptr && wanted.empty() && templates.size() == 1) text = &templates.front().source;
    if (text == nullptr)
        throw RequestError(fmt::format("the model has no chat template called \"{}\"; it has: {}", printable(name),
                                       names_of(templates)));
    const bool is_plain = name == kDefaultChatTemplate;
    return ChatTemplate::parse(*text, is_plain ? std::string("the model's chat template")
                                               : fmt::format("the model's chat template \"{}\"", printable(name)));
}

// Chat templates for models that have none, written for this project from the documented prompt formats of the
// families, and the guess which family a model belongs to. The guess tries them in this order: families with their own
// special tokens first.

namespace {

constexpr std::string_view kChatml = R"jinja({%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})jinja";

constexpr std::string_view kLlama3 = R"jinja({{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content|trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%})jinja";

constexpr std::string_view kGemma = R"jinja({{- bos_token -}}
{#- No system turn: what it says stands before the first user turn. -#}
{%- set ns = namespace(before='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.before = ns.before ~ message.content|trim ~ '\n\n' -%}
    {%- else -%}
        {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\n' -}}
        {{- ns.before ~ message.content|trim ~ '<end_of_turn>\n' -}}
        {%- set ns.before = '' -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%})jinja";

constexpr std::string_view kPhi3 = R"jinja({%- for message in messages -%}
    {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%})jinja";

constexpr std::string_view kPhi4 = R"jinja({%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '<|im_sep|>' ~ message.content ~ '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant<|im_sep|>' -}}{%- endif -%})jinja";

constexpr std::string_view kPhi4Mini = R"jinja({%- for message in messages -%}
    {{- '<|' ~ message.role ~ '|>' ~ message.content ~ '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%})jinja";

constexpr std::string_view kGemma4 = R"jinja({{- bos_token -}}
{#- The mark of thoughts is at the beginning of the system turn. An answer that shall not think begins after an
    empty thought, <|channel>thought. -#}
{%- set thinks = enable_thinking is defined and enable_thinking -%}
{%- if thinks and (not messages or messages[0].role != 'system') -%}
    {{- '<|turn>system\n<|think|><turn|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {{- '<|turn>' ~ ('model' if message.role == 'assistant' else message.role) ~ '\n' -}}
    {%- if thinks and loop.first and message.role == 'system' -%}{{- '<|think|>' -}}{%- endif -%}
    {{- message.content|trim ~ '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|turn>model\n' -}}
    {%- if not thinks -%}{{- '<|channel>thought\n<channel|>' -}}{%- endif -%}
{%- endif -%})jinja";

constexpr std::string_view kMuse = R"jinja({{- bos_token -}}
{%- set effort = reasoning_effort if reasoning_effort is defined and reasoning_effort else 'high' -%}
{%- set last = '\n\nReasoning strength: ' ~ effort ~ '.\n\n# Valid recipients: "self", "user".<|eot|>' -%}
{%- if not messages or messages[0].role != 'system' -%}
    {{- '<|start|>system<|message|>You are a helpful AI assistant.' ~ last -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if message.reasoning_content -%}
            {{- '<|start|>assistant to=self<|message|>' ~ message.reasoning_content ~ '<|eom|>' -}}
        {%- endif -%}
        {{- '<|start|>assistant to=user<|message|>' ~ message.content ~ '<|eot|>' -}}
    {%- else -%}
        {{- '<|start|>' ~ message.role ~ '<|message|>' ~ message.content -}}
        {{- last if message.role == 'system' else '<|eot|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%})jinja";

constexpr std::string_view kDeepseek = R"jinja({{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- message.content -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<｜Assistant｜>' ~ message.content ~ eos_token -}}
    {%- else -%}
        {{- '<｜User｜>' ~ message.content -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' -}}{%- endif -%})jinja";

constexpr std::string_view kZephyr = R"jinja({%- for message in messages -%}
    {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ eos_token ~ '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%})jinja";

constexpr std::string_view kMistral = R"jinja({{- bos_token -}}
{#- No system turn: what it says stands before the next user turn. -#}
{%- set ns = namespace(before='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.before = ns.before ~ message.content ~ '\n\n' -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' ~ message.content|trim ~ eos_token -}}
    {%- else -%}
        {{- '[INST] ' ~ ns.before ~ message.content ~ '[/INST]' -}}
        {%- set ns.before = '' -%}
    {%- endif -%}
{%- endfor -%})jinja";

// The prompt format of Mistral models whose tokenizer has version 7 or later: Mistral Small 3, Ministral 3.
constexpr std::string_view kMistralV7 = R"jinja({{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- '[SYSTEM_PROMPT]' ~ message.content ~ '[/SYSTEM_PROMPT]' -}}
    {%- elif message.role == 'assistant' -%}
        {{- message.content ~ eos_token -}}
    {%- else -%}
        {{- '[INST]' ~ message.content ~ '[/INST]' -}}
    {%- endif -%}
{%- endfor -%})jinja";

// The prompt format of Mistral models whose tokenizer is older than version 3: [INST] and [/INST] are plain text there,
// with a space on either side of the message.
constexpr std::string_view kMistralV1 = R"jinja({{- bos_token -}}
{%- set ns = namespace(before='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.before = ns.before ~ message.content ~ '\n\n' -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' ~ message.content|trim ~ eos_token -}}
    {%- else -%}
        {{- '[INST] ' ~ ns.before ~ message.content ~ ' [/INST]' -}}
        {%- set ns.before = '' -%}
    {%- endif -%}
{%- endfor -%})jinja";

constexpr std::string_view kLlama2 = R"jinja({#- The system text stands inside the next user turn. -#}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = '<<SYS>>\n' ~ message.content|trim ~ '\n<</SYS>>\n\n' -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' ~ message.content|trim ~ ' ' ~ eos_token -}}
    {%- else -%}
        {{- bos_token ~ '[INST] ' ~ ns.system ~ message.content|trim ~ ' [/INST]' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%})jinja";

constexpr std::string_view kVicuna = R"jinja({{- bos_token -}}
{%- if not messages or messages[0].role != 'system' -%}
    {{- 'A chat between a curious user and an artificial intelligence assistant. ' -}}
    {{- "The assistant gives helpful, detailed, and polite answers to the user's questions. " -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- message.content ~ ' ' -}}
    {%- elif message.role == 'assistant' -%}
        {{- 'ASSISTANT: ' ~ message.content|trim ~ eos_token -}}
    {%- else -%}
        {{- 'USER: ' ~ message.content|trim ~ ' ' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%})jinja";

constexpr std::string_view kPlain = R"jinja({{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- message.content|trim ~ '\n\n' -}}
    {%- elif message.role == 'assistant' -%}
        {{- '### Response:\n' ~ message.content|trim ~ '\n\n' -}}
    {%- else -%}
        {{- '### Instruction:\n' ~ message.content|trim ~ '\n\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '### Response:\n' -}}{%- endif -%})jinja";

constexpr std::array<TemplateFamily, 16> kFamilies = {{{"chatml", kChatml, "<|im_end|>"},
                                                       {"llama-3", kLlama3, "<|eot_id|>"},
                                                       {"gemma", kGemma, "<end_of_turn>"},
                                                       {"phi-3", kPhi3, "<|end|>"},
                                                       {"phi-4", kPhi4, "<|im_end|>"},
                                                       {"phi-4-mini", kPhi4Mini, "<|end|>"},
                                                       {"gemma-4", kGemma4, "<turn|>"},
                                                       {"muse", kMuse, "<|eot|>"},
                                                       {"deepseek", kDeepseek, ""},
                                                       {"zephyr", kZephyr, ""},
                                                       {"mistral", kMistral, ""},
                                                       {"mistral-v1", kMistralV1, ""},
                                                       {"mistral-v7", kMistralV7, ""},
                                                       {"llama-2", kLlama2, ""},
                                                       {"vicuna", kVicuna, ""},
                                                       {"plain", kPlain, "### Instruction:"}}};

// A family, and the special tokens by which it is recognised: both must be in the vocabulary. The first row that
// matches decides, so a family whose vocabulary has the tokens of another comes before it.
struct Mark {
    std::string_view family;
    std::array<std::string_view, 2> tokens;
};
constexpr std::array<Mark, 12> kMarks = {{{"phi-4", {"<|im_start|>", "<|im_sep|>"}},
                                          {"chatml", {"<|im_start|>", "<|im_end|>"}},
                                          {"llama-3", {"<|start_header_id|>", "<|eot_id|>"}},
                                          {"gemma", {"<start_of_turn>", "<end_of_turn>"}},
                                          {"gemma-4", {"<|turn>", "<turn|>"}},
                                          {"muse", {"<|message|>", "<|eom|>"}},
                                          {"phi-4-mini", {"<|end|>", "<|tool_response|>"}},
                                          {"phi-3", {"<|assistant|>", "<|end|>"}},
                                          {"deepseek", {"<｜User｜>", "<｜Assistant｜>"}},
                                          {"zephyr", {"<|user|>", "<|assistant|>"}},
                                          {"mistral-v7", {"[SYSTEM_PROMPT]", "[INST]"}},
                                          {"mistral", {"[INST]", "[/INST]"}}}};

// A family, and the words of a model's name by which it is recognised: the name must contain both. Names without "chat"
// or "instruct" may belong to models that were not trained for conversations. The first row that matches decides.
struct NameWords {
    std::string_view family;
    std::array<std::string_view, 2> words;
};
constexpr std::array<NameWords, 14> kNames = {{{"vicuna", {"vicuna", ""}},
                                               {"zephyr", {"zephyr", ""}},
                                               {"zephyr", {"tinyllama", "chat"}},
                                               {"plain", {"alpaca", ""}},
                                               {"chatml", {"hermes", ""}},
                                               {"chatml", {"qwen", "chat"}},
                                               {"chatml", {"qwen", "instruct"}},
                                               {"phi-3", {"phi-3", "instruct"}},
                                               {"mistral-v1", {"mixtral", "instruct"}},
                                               {"mistral-v1", {"mistral", "instruct"}},
                                               {"llama-3", {"llama-3", "instruct"}},
                                               {"llama-3", {"llama3", "instruct"}},
                                               {"llama-2", {"llama-2", "chat"}},
                                               {"llama-2", {"llama2", "chat"}}}};

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c == '_' || c == ' ' ? '-' : c;
}

}  // namespace

const TemplateFamily* find_template_family(std::string_view name) {
    const auto found =
        std::find_if(kFamilies.begin(), kFamilies.end(), [name](const auto& family) { return family.name == name; });
    return found == kFamilies.end() ? nullptr : &*found;
}

std::string template_family_names() {
    std::string names;
    for (const TemplateFamily& family : kFamilies) names.append(names.empty() ? "" : ", ").append(family.name);
    return names;
}

const TemplateFamily* guess_template_family(const std::function<bool(std::string_view)>& has_token,
                                            std::string_view model_name) {
    for (const Mark& mark : kMarks)
        if (std::all_of(mark.tokens.begin(), mark.tokens.end(), has_token)) return find_template_family(mark.family);
    std::string name(model_name);
    std::transform(name.begin(), name.end(), name.begin(), lower);
    const auto is_in_name = [&name](std::string_view word) { return name.find(word) != std::string::npos; };
    for (const NameWords& known : kNames)
        if (std::all_of(known.words.begin(), known.words.end(), is_in_name)) return find_template_family(known.family);
    return nullptr;
}

}  // namespace slipstream
