// Turns the texts of a benchmark into the tokens of a prompt: raw text, or a conversation through a chat template.
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

/// One conversation, as each column of a benchmark runs it.
struct BenchTalk {
    std::int64_t n_turns = 1;
    /// Returns the tokens before answer `turn`. `text`: all tokens so far; `answers`: the generated tokens of the
    /// earlier answers, end tokens included.
    std::function<std::vector<TokenId>(std::int64_t turn, std::span<const TokenId> text,
                                       std::span<const std::vector<TokenId>> answers)>
        prompt;
};

/// The chat template that a request chose, for a model.
class BenchForm {
public:
    /// Chooses the template and reports it to `callbacks`. `tokenizer` and `model` must outlive this object. Throws
    /// what completion_template() throws.
    BenchForm(const BenchRequest& request, const OpenedModel& model, const Tokenizer& tokenizer,
              const EngineCallbacks& callbacks);

    /// Returns the name of the template; empty if the text stays raw.
    [[nodiscard]] const std::string& template_name() const { return name_; }
    [[nodiscard]] bool is_raw() const { return !form_; }
    [[nodiscard]] const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
    /// Returns the prompt for the answer that follows the last of `turns`. There must be a template, and one of
    /// `answers` for each turn but the last (CHECKed). An end token at the end of an answer is dropped, since the
    /// template writes its own. Throws TemplateError, FormatError, and Interrupted after a signal.
    [[nodiscard]] std::vector<TokenId> prompt(std::span<const std::string> turns,
                                              std::span<const std::vector<TokenId>> answers) const;

private:
    const Tokenizer* tokenizer_;
    const ModelConfig* config_;
    std::vector<TokenId> end_tokens_;
    std::optional<std::string> system_;
    std::string turn_end_;  // text that ends an answer, if the template has no token for that; else empty
    std::string name_;
    std::optional<ChatForm> form_;
};

}  // namespace slipstream::tools
