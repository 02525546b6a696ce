// What the server asks of the engine: a prompt in, a text out. The real one is EngineTexts; tests have a scripted one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/engine/engine.h"

namespace slipstream::tools {

/// A request that is ready to run: parsed, rendered, tokenized.
struct TextTask {
    EncodedPrompt prompt;
    SamplerOptions sampling{};
    bool ignore_end = false;
    TextGenerationOptions text{};
    std::optional<int> n_logprobs{};
};

/// Called on the engine's thread. None is empty.
struct TextTaskCallbacks {
    /// How many tokens of the prompt need no computing; called once, first.
    std::function<void(std::int64_t reused)> on_start;
    std::function<void(std::int64_t done, std::int64_t total)> on_prefill;
    /// Text of new tokens, in complete characters.
    std::function<void(std::string_view)> on_text;
    /// The new tokens of a pass up to a stop, after on_text; [tokens] log probabilities if the task asks for them.
    std::function<void(std::span<const TokenId> tokens, std::span<const TokenLogprob> logprobs)> on_commit;
    const std::atomic<bool>* cancel = nullptr;
};

struct TextOutcome {
    TextGenerationResult result;
    std::int64_t reused_tokens = 0;   // of the prompt, whose KV was there from earlier texts
    std::int64_t draft_tokens = 0;    // offered
    std::int64_t draft_accepted = 0;  // of them
};

class TextEngine {
public:
    TextEngine() = default;
    TextEngine(const TextEngine&) = delete;
    TextEngine& operator=(const TextEngine&) = delete;
    virtual ~TextEngine() = default;

    [[nodiscard]] virtual std::int64_t context_tokens() const = 0;
    /// Returns what is kept of earlier texts.
    [[nodiscard]] virtual KeptFigures kept() const { return {}; }
    /// Generates the text of a task. Its tokens follow from the task alone, whatever ran before. Usable again after any
    /// error. Throws RequestError if the prompt leaves no room in the context, and what the callbacks throw.
    [[nodiscard]] virtual TextOutcome generate(const TextTask& task, const TextTaskCallbacks& callbacks) = 0;
};

}  // namespace slipstream::tools
