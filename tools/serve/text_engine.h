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

/// The draft tree of a pass, and what became of it.
struct PassTree {
    struct Node {
        TokenId token = 0;
        std::int32_t parent = -1;   // index of a node before it; -1: node 0, the last token before the pass
        std::uint32_t sources = 0;  // that proposed it, bit i for the i-th of `sources`; 0: not known
        bool accepted = false;
    };
    std::vector<Node> nodes{};
    std::vector<std::string> sources{};  // names
    TokenId sampled = 0;                 // the last new token, which the target chose after the accepted path
};

/// A pass that has committed tokens.
struct PassReport {
    std::int64_t n_nodes = 1;          // of its tree, node 0 included
    std::int64_t n_tokens = 1;         // new ones
    double seconds = 0.0;              // of the target; 0: not measured, since it had prompt tokens
    std::function<PassTree()> tree{};  // costs time; valid during the call
    /// Returns for each link to a device which part of the time since the last call it copied; empty if nothing
    /// streams.
    std::function<std::vector<double>()> link_busy{};
};

/// Called on the engine's thread. None is empty but on_pass, which may be.
struct TextTaskCallbacks {
    /// How many tokens of the prompt need no computing; called once, first.
    std::function<void(std::int64_t reused)> on_start;
    std::function<void(std::int64_t done, std::int64_t total)> on_prefill;
    /// A pass has committed tokens; called before on_text and on_commit. It throws nothing.
    std::function<void(const PassReport&)> on_pass{};
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
    /// PassReport::link_busy while a prompt is computed, for on_prefill. Empty also where several devices compute.
    [[nodiscard]] virtual std::vector<double> prompt_link_busy() { return {}; }
};

}  // namespace slipstream::tools
