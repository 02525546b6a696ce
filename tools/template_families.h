// Chat templates for models that come without one: the common forms, by name, written for this program after what the
// models' makers publish. Which of them a model was trained with is told by tokens that only its form has, else by the
// words in its name (vicuna, llama-2 ... chat); where neither tells, nothing is guessed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"

namespace slipstream::tools {

struct TemplateFamily {
    std::string_view name;                         // as --template spells it
    std::string_view source;                       // Jinja, of the plain conversation: system, user, assistant
    std::span<const std::string_view> markers;     // tokens of the vocabulary, all of which tell of this form
    std::span<const std::string_view> name_words;  // words of a model's name, all of which tell of it
};

[[nodiscard]] std::span<const TemplateFamily> template_families();
/// The family of that name, or null.
[[nodiscard]] const TemplateFamily* find_template_family(std::string_view name);
/// What `tokenizer` and `model_name` (a file's name, in any case) tell of; or null.
[[nodiscard]] const TemplateFamily* guess_template_family(const Tokenizer& tokenizer, std::string_view model_name);
/// "chatml, llama-3, ...".
[[nodiscard]] std::string template_family_names();

}  // namespace slipstream::tools
