// The engine of a loaded model, as the server uses it. KV of earlier texts is kept: a prompt that begins as one of them
// did computes only the rest, and gets the same bits.
#pragma once

#include <chrono>
#include <vector>

#include "tools/serve/text_engine.h"

namespace slipstream::tools {

class EngineTexts final : public TextEngine {
public:
    /// Places and loads the model. `tokenizer` must outlive this object. Throws what TextGenerator's constructor
    /// throws.
    EngineTexts(const GeneratorOptions& options, OpenedModel opened, const Tokenizer& tokenizer,
                const SamplerOptions& sampling, const EngineCallbacks& callbacks);

    [[nodiscard]] std::int64_t context_tokens() const override { return generator_.model().context_tokens(); }
    [[nodiscard]] KeptFigures kept() const override { return generator_.kept(); }
    [[nodiscard]] TextOutcome generate(const TextTask& task, const TextTaskCallbacks& callbacks) override;

    [[nodiscard]] std::vector<double> prompt_link_busy() override;

    [[nodiscard]] const TextGenerator& generator() const { return generator_; }

private:
    void report(const Observation& pass, const TextTaskCallbacks& callbacks);
    [[nodiscard]] PassTree tree_of(const Observation& pass);
    [[nodiscard]] std::vector<double> link_busy();

    const Tokenizer& tokenizer_;
    std::vector<TokenId> end_tokens_;
    SamplerOptions sampling_;  // options of the last text's sampler, for which generator_ is set up
    TextGenerator generator_;
    // Time of the last call of link_busy(), or of the start of the text; links_ has the links' figures at that time.
    std::chrono::steady_clock::time_point links_at_{};
    std::vector<LinkFigures> links_;
};

}  // namespace slipstream::tools
