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
        std::int32_t parent = -1;   // index of an earlier node; -1: this is node 0, the last token before the pass
        std::uint32_t sources = 0;  // sources that proposed the node: bit i for PassTree::sources[i]; 0: not known
        bool accepted = false;
    };
    std::vector<Node> nodes{};
    std::vector<std::string> sources{};  // names
    TokenId sampled = 0;                 // the last new token, which the target chose after the accepted path
};

/// A pass that has committed tokens.
struct PassReport {
    std::int64_t n_nodes = 1;          // nodes of the draft tree, node 0 included
    std::int64_t n_tokens = 1;         // tokens that the pass committed
    double seconds = 0.0;              // time of the target's pass; 0: not measured, since the pass had prompt tokens
    std::function<PassTree()> tree{};  // copies the tree, which takes time; call only inside on_pass
    /// Returns, for each link to a device, the fraction (0 to 1) of the time since the last call in which it copied;
    /// empty if nothing streams. Call only inside on_pass.
    std::function<std::vector<double>()> link_busy{};
};

/// Callbacks of a text, called on the engine's thread. All must be set, except on_pass. `cancel` may be null, and must
/// outlive the text.
struct TextTaskCallbacks {
    /// Called once, before all others: how many tokens of the prompt are reused from earlier texts.
    std::function<void(std::int64_t reused)> on_start;
    std::function<void(std::int64_t done, std::int64_t total)> on_prefill;
    /// Called when a pass has committed tokens, before on_text and on_commit. It must not throw.
    std::function<void(const PassReport&)> on_pass{};
    /// Called with the text of new tokens, in complete characters.
    std::function<void(std::string_view)> on_text;
    /// Called after on_text with the new tokens of a pass, up to a stop. `logprobs` has one entry for each token if the
    /// task asks for log probabilities, else none.
    std::function<void(std::span<const TokenId> tokens, std::span<const TokenLogprob> logprobs)> on_commit;
    const std::atomic<bool>* cancel = nullptr;
};

struct TextOutcome {
    TextGenerationResult result;
    std::int64_t reused_tokens = 0;   // tokens of the prompt whose KV was kept from earlier texts
    std::int64_t draft_tokens = 0;    // offered
    std::int64_t draft_accepted = 0;  // of draft_tokens
};

class TextEngine {
public:
    TextEngine() = default;
    TextEngine(const TextEngine&) = delete;
    TextEngine& operator=(const TextEngine&) = delete;
    virtual ~TextEngine() = default;

    [[nodiscard]] virtual std::int64_t context_tokens() const = 0;
    /// Returns how much KV of earlier texts is kept, and how often it was reused.
    [[nodiscard]] virtual KeptFigures kept() const { return {}; }
    /// Generates the text of a task. Its tokens follow from the task alone, whatever ran before. The engine is usable
    /// again after any error. Throws RequestError if the prompt leaves no room in the context, and what the callbacks
    /// throw.
    [[nodiscard]] virtual TextOutcome generate(const TextTask& task, const TextTaskCallbacks& callbacks) = 0;
    /// Returns what PassReport::link_busy does, while a prompt is computed; call only inside on_prefill. Empty also if
    /// several devices compute.
    [[nodiscard]] virtual std::vector<double> prompt_link_busy() { return {}; }
};

}  // namespace slipstream::tools
