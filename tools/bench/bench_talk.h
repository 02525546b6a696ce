// What a bench's model reads of what is said to it: raw text, or a conversation through a chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/bench/bench_request.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

/// One conversation as a column of a bench holds it.
struct BenchTalk {
    std::int64_t n_turns = 1;
    /// The tokens in front of answer `turn`, out of all tokens so far and the `answers` before it, end tokens and all.
    std::function<std::vector<TokenId>(std::int64_t turn, std::span<const TokenId> text,
                                       std::span<const std::vector<TokenId>> answers)>
        prompt;
};

/// The chat template of a request, on a model.
class BenchForm {
public:
    /// `tokenizer` outlives this. Tells which template it is; throws what completion_template() throws.
    BenchForm(const BenchRequest& request, const OpenedModel& model, const Tokenizer& tokenizer,
              const EngineCallbacks& callbacks);

    /// Empty where the text is raw.
    [[nodiscard]] const std::string& template_name() const { return name_; }
    [[nodiscard]] bool is_raw() const { return !form_; }
    [[nodiscard]] const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
    /// The prompt for the answer behind the last of `turns`; there is a template. `answers` are to the turns before it;
    /// an end token at the end of one is left to the template. Throws TemplateError, Interrupted, FormatError.
    [[nodiscard]] std::vector<TokenId> prompt(std::span<const std::string> turns,
                                              std::span<const std::vector<TokenId>> answers) const;

private:
    const Tokenizer* tokenizer_;
    const ModelConfig* config_;
    std::vector<TokenId> end_tokens_;
    std::optional<std::string> system_;
    std::string turn_end_;  // a text that ends an answer, where no token does
    std::string name_;
    std::optional<ChatForm> form_;
};

}  // namespace slipstream::tools
