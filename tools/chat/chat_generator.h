// ChatGenerator: generates the answers of a chat. Each prompt is the whole conversation. The KV of the longest prefix
// that the prompt has in common with the previous prompt and its answer is reused (PrefixStore).
//
// Invariant: an answer is the text that `generate` gives for the same prompt, seed and samplers. With --verify
// rejection and --draft retrieval it has only the same distribution: the KV view, and with it the draft tokens, depends
// on earlier answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/loop/text_generation.h"
#include "tools/chat/chat_session.h"
#include "tools/engine/engine.h"
#include "tools/options/sampling_options.h"

namespace slipstream::tools {

struct ChatAnswer {
    std::string text;
    TextGenerationResult result;
    std::int64_t kept_tokens = 0;                // tokens of the prompt whose KV was reused
    std::optional<std::int64_t> saved_tokens{};  // tokens of an interrupted prompt that are kept beside the chat's file
};

class ChatGenerator {
public:
    /// `tokenizer` must outlive this object. Throws what TextGenerator's constructor throws.
    ChatGenerator(const GeneratorOptions& options, OpenedModel opened, const Tokenizer& tokenizer,
                  const ChatSettings& settings, const EngineCallbacks& callbacks);

    /// Generates an answer to `prompt`. Throws RequestError if the prompt leaves no room in the context, and what the
    /// callbacks throw. This object stays usable after any error.
    [[nodiscard]] ChatAnswer answer(EncodedPrompt prompt, const ChatSettings& settings,
                                    const TextGenerationOptions& options, const TextGenerationCallbacks& callbacks);

    /// Records all answers in `trace`, which must outlive this object.
    void trace_with(TraceFile& trace) {
        generator_.trace_with(trace);
        trace_ = &trace;
    }
    /// Returns TraceFile::take_note() of the trace, if there is one.
    [[nodiscard]] std::optional<std::string> take_trace_note() {
        return trace_ != nullptr ? trace_->take_note() : std::nullopt;
    }

    /// From now on prompts are saved by `kept` while they are computed, so that an interrupted one can go on later.
    /// `kept` must outlive this object.
    void keep_prompts(KeptPrompt& kept) { kept_ = &kept; }
    /// Call between passes: saves what is computed of the prompt. Returns the message to show if the system refuses to
    /// write (KeptPrompt::save()).
    [[nodiscard]] std::optional<std::string> save_prompt() { return kept_ != nullptr ? kept_->save() : std::nullopt; }
    /// Removes what save_prompt() has saved of the prompt, if anything. Call when the answer is in the session's file,
    /// or when the user's message is taken back.
    void drop_prompt() {
        if (kept_ != nullptr) kept_->remove();
    }

    /// Throws RequestError if no answer can be sampled with these settings (logit biases that forbid all tokens).
    void check(const ChatSettings& settings) const { check_logit_bias(settings.sampling, model().config().vocab); }

    /// Encodes a prompt that ChatForm::prompt_text() made. Throws Interrupted.
    [[nodiscard]] EncodedPrompt encoded(const MarkedText& prompt) const;

    [[nodiscard]] std::int64_t context_tokens() const { return model().context_tokens(); }
    /// Returns the number of tokens of the last prompt and its answer.
    [[nodiscard]] std::int64_t used_tokens() const { return std::ssize(generator_.sequence().tokens()); }
    /// Returns the statistics of all answers so far: sums of their counts and seconds.
    [[nodiscard]] const TextGenerationResult& totals() const { return totals_; }
    /// Returns the number of prompt tokens whose KV was reused, over all answers.
    [[nodiscard]] std::int64_t kept_tokens() const { return kept_tokens_; }
    /// Sets the figures of `figures` about prompts that were reused, kept and read again.
    void add_figures(RunFigures& figures) const;
    [[nodiscard]] std::int64_t n_answers() const { return n_answers_; }
    [[nodiscard]] const TextGenerator& generator() const { return generator_; }
    [[nodiscard]] const LoadedModel& model() const { return generator_.model(); }

private:
    void count(const ChatAnswer& answer);

    const Tokenizer* tokenizer_;
    std::vector<TokenId> end_tokens_;
    SamplerOptions sampling_;  // options of the last answer's sampler, for which generator_ is set up
    TextGenerator generator_;
    TraceFile* trace_ = nullptr;  // null: answers are not traced
    KeptPrompt* kept_ = nullptr;  // null: interrupted prompts are not kept
    TextGenerationResult totals_;
    double nodes_ = 0.0;  // sum of the tree nodes of all passes
    std::int64_t kept_tokens_ = 0;
    std::int64_t resumed_tokens_ = 0;     // prompt tokens read from files and not computed again
    std::int64_t n_checkpoints_ = 0;      // of all prompts
    std::uint64_t checkpoint_bytes_ = 0;  // largest side file of a prompt
    std::int64_t n_answers_ = 0;
};

}  // namespace slipstream::tools
