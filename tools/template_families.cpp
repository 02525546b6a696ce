#include "tools/template_families.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace slipstream::tools {

namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 1> kChatMlMarkers{"<|im_start|>"};
constexpr std::array<std::string_view, 2> kLlama3Markers{"<|start_header_id|>", "<|eot_id|>"};
constexpr std::array<std::string_view, 2> kGemmaMarkers{"<start_of_turn>", "<end_of_turn>"};
constexpr std::array<std::string_view, 3> kPhi3Markers{"<|user|>", "<|assistant|>", "<|end|>"};
constexpr std::array<std::string_view, 2> kDeepSeekMarkers{"<｜User｜>", "<｜Assistant｜>"};
constexpr std::array<std::string_view, 1> kVicunaWords{"vicuna"};
constexpr std::array<std::string_view, 1> kZephyrWords{"zephyr"};
constexpr std::array<std::string_view, 2> kTinyLlamaWords{"tinyllama", "chat"};
constexpr std::array<std::string_view, 2> kLlama2Words{"llama-2", "chat"};
constexpr std::array<std::string_view, 2> kMistralWords{"mistral", "instruct"};
constexpr std::array<std::string_view, 2> kMixtralWords{"mixtral", "instruct"};

constexpr std::string_view kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kLlama3 =
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + "
    "'<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";
// There is no system turn: its text leads the first user's.
constexpr std::string_view kGemma =
    "{% set ns = namespace(lead='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.lead = m.content | trim + '\\n\\n' %}{% else %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' + ns.lead + m.content | trim + "
    "'<end_of_turn>\\n' }}{% set ns.lead = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";
constexpr std::string_view kPhi3 =
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";
constexpr std::string_view kDeepSeek =
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
    "{% elif m.role == 'assistant' %}{{ '<｜Assistant｜>' + m.content + eos_token }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}";
constexpr std::string_view kZephyr =
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";
// The first beginning-of-text token is the tokenizer's; each later exchange has its own.
constexpr std::string_view kLlama2 =
    "{% set ns = namespace(lead='', first=true) %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.lead = '<<SYS>>\\n' + m.content | trim + '\\n<</SYS>>\\n\\n' %}"
    "{% elif m.role == 'user' %}{% if not ns.first %}{{ bos_token }}{% endif %}{% set ns.first = false %}"
    "{{ '[INST] ' + ns.lead + m.content | trim + ' [/INST]' }}{% set ns.lead = '' %}"
    "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}";
constexpr std::string_view kMistral =
    "{% set ns = namespace(lead='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.lead = m.content | trim + '\\n\\n' %}"
    "{% elif m.role == 'user' %}{{ '[INST] ' + ns.lead + m.content | trim + ' [/INST]' }}{% set ns.lead = '' %}"
    "{% else %}{{ ' ' + m.content | trim + eos_token }}{% endif %}{% endfor %}";
// FastChat's conversation of version 1.1.
constexpr std::string_view kVicuna =
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim + ' ' }}{% else %}"
    "{{ \"A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, "
    "and polite answers to the user's questions. \" }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}{{ 'USER: ' + m.content | trim + ' ' }}"
    "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content | trim + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

// In the order of guessing: markers of one form may occur in the vocabulary of another.
constexpr std::array kFamilies{
    TemplateFamily{"llama-3", kLlama3, kLlama3Markers, {}},      TemplateFamily{"gemma", kGemma, kGemmaMarkers, {}},
    TemplateFamily{"chatml", kChatMl, kChatMlMarkers, {}},       TemplateFamily{"phi-3", kPhi3, kPhi3Markers, {}},
    TemplateFamily{"deepseek", kDeepSeek, kDeepSeekMarkers, {}}, TemplateFamily{"vicuna", kVicuna, {}, kVicunaWords},
    TemplateFamily{"zephyr", kZephyr, {}, kZephyrWords},         TemplateFamily{"zephyr", kZephyr, {}, kTinyLlamaWords},
    TemplateFamily{"llama-2", kLlama2, {}, kLlama2Words},        TemplateFamily{"mistral", kMistral, {}, kMistralWords},
    TemplateFamily{"mistral", kMistral, {}, kMixtralWords},
};

bool is_special_token(const Tokenizer& tokenizer, std::string_view spelling) {
    const std::vector<TokenId> ids = tokenizer.encode(spelling, SpecialTokens::Parse);
    return std::any_of(ids.begin(), ids.end(), [&](TokenId id) {
        return tokenizer.piece(id) == spelling && tokenizer.token_kind(id) != TokenKind::Normal;
    });
}

// "Llama 2", "llama_2" and "Llama-2" are one word.
std::string plain_name(std::string_view name) {
    std::string result;
    for (const char c : name)
        result += c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

}  // namespace

std::span<const TemplateFamily> template_families() {
    return kFamilies;
}

const TemplateFamily* find_template_family(std::string_view name) {
    const auto found = std::ranges::find(kFamilies, name, &TemplateFamily::name);
    return found == kFamilies.end() ? nullptr : &*found;
}

const TemplateFamily* guess_template_family(const Tokenizer& tokenizer, std::string_view model_name) {
    for (const TemplateFamily& family : kFamilies)
        if (!family.markers.empty() && std::ranges::all_of(family.markers, [&](std::string_view marker) {
                return is_special_token(tokenizer, marker);
            }))
            return &family;
    const std::string name = plain_name(model_name);
    for (const TemplateFamily& family : kFamilies)
        if (!family.name_words.empty() && std::ranges::all_of(family.name_words, [&](std::string_view word) {
                return name.find(word) != std::string::npos;
            }))
            return &family;
    return nullptr;
}

std::string template_family_names() {
    std::string names;
    std::string_view last;
    for (const TemplateFamily& family : kFamilies) {
        if (family.name == last) continue;
        last = family.name;
        names += (names.empty() ? "" : ", ") + std::string(family.name);
    }
    return names;
}

}  // namespace slipstream::tools
