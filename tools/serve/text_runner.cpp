#include "tools/serve/text_runner.h"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "tools/base/amounts.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kProgressInterval{250};  // least time between two reports of a prompt's progress;
                                                             // the last report is not delayed

// Passes a growing text on to its client, a part for each pass.
class GrowingAnswer {
public:
    GrowingAnswer(TextJob& job, TextEngine& engine, ServerStatus& status, LiveFeed& live)
        : job_(job), engine_(engine), status_(status), live_(live) {}

    [[nodiscard]] TextTaskCallbacks callbacks() {
        return {.on_start =
                    [this](std::int64_t reused) {
                        reused_ = reused;
                        live_.start_prompt(reused);
                    },
                .on_prefill = [this](std::int64_t done, std::int64_t total) { on_prefill(done, total); },
                .on_pass = [this](const PassReport& report) { live_.pass(report); },
                .on_text = [this](std::string_view text) { text_ += text; },
                .on_commit =
                    [this](std::span<const TokenId> tokens, std::span<const TokenLogprob> logprobs) {
                        n_tokens_ += std::ssize(tokens);
                        flush(logprobs);
                        status_.update([&](StatusSnapshot& state) { state.running->generated = n_tokens_; });
                    },
                .cancel = &job_.exchange->cancelled()};
    }
    /// Sends the text that was generated since the last call. Cancels generation if the answer is then complete.
    void flush(std::span<const TokenLogprob> logprobs = {}) {
        if (!job_.writer->part(std::exchange(text_, {}), logprobs)) return;
        is_complete_ = true;
        job_.exchange->cancel();
    }
    [[nodiscard]] std::int64_t n_tokens() const { return n_tokens_; }
    /// Whether generation was cancelled because the answer was complete.
    [[nodiscard]] bool is_complete() const { return is_complete_; }

private:
    void on_prefill(std::int64_t done, std::int64_t total) {
        status_.update([&](StatusSnapshot& state) { state.running->prompt_done = done; });
        live_.prompt(done, [this] { return engine_.prompt_link_busy(); });
        const Clock::time_point now = Clock::now();
        if (done < total && now < next_) return;
        next_ = now + kProgressInterval;
        const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - began_);
        job_.writer->progress({.total = total, .cached = reused_, .processed = done, .milliseconds = elapsed.count()});
    }

    TextJob& job_;
    TextEngine& engine_;
    ServerStatus& status_;
    LiveFeed& live_;
    std::string text_;
    bool is_complete_ = false;
    std::int64_t n_tokens_ = 0;
    std::int64_t reused_ = 0;
    Clock::time_point began_ = Clock::now();
    Clock::time_point next_{};
};

void count(const TextOutcome& outcome, ServerTotals& totals) {
    const TextGenerationResult& result = outcome.result;
    totals.prompt_tokens += result.prompt_tokens;
    totals.reused_tokens += outcome.reused_tokens;
    totals.generated_tokens += std::ssize(result.tokens);
    totals.passes += result.passes;
    totals.draft_tokens += outcome.draft_tokens;
    totals.draft_accepted += outcome.draft_accepted;
    totals.prefill_seconds += result.prefill_seconds;
    totals.decode_seconds += result.decode_seconds;
}

std::string describe(const TextOutcome& outcome) {
    const TextGenerationResult& result = outcome.result;
    return fmt::format("{} ({} kept) in {:.2f} s, {} in {:.2f} s", counted(result.prompt_tokens, "prompt token"),
                       outcome.reused_tokens, result.prefill_seconds, counted(std::ssize(result.tokens), "token"),
                       result.decode_seconds);
}

}  // namespace

void run_text(TextJob& job, TextEngine& engine, ServerStatus& status, LiveFeed& live,
              const std::function<void(std::string_view)>& log) {
    if (job.exchange->cancelled().load()) {
        job.writer->fail(ApiError::stopping());  // sent if the server stops; a client that has left gets nothing
        status.update([](StatusSnapshot& state) { ++state.totals.cancelled; });
        return log(fmt::format("request {} {}: its client left before it began", job.id, job.path));
    }
    status.update([&](StatusSnapshot& state) {
        state.running = {.job = job.id, .prompt_tokens = std::ssize(job.task.prompt.tokens)};
    });
    live.begin_text(job.id, std::ssize(job.task.prompt.tokens));
    GrowingAnswer answer(job, engine, status, live);
    try {
        // A request that came while the model was being loaded was checked only against the context of --ctx or of the
        // model, which may be larger.
        if (const std::int64_t n_prompt = std::ssize(job.task.prompt.tokens); n_prompt >= engine.context_tokens())
            throw ApiError::too_long(n_prompt, engine.context_tokens());
        TextOutcome outcome = engine.generate(job.task, answer.callbacks());
        answer.flush();
        if (answer.is_complete()) outcome.result.stop_reason = StopReason::EndToken;
        const bool is_cut = outcome.result.stop_reason == StopReason::Interrupt;
        status.update([&](StatusSnapshot& state) {  // before the answer, after which the client may ask for the status
            state.running.reset();
            ++(is_cut ? state.totals.cancelled : state.totals.finished);
            count(outcome, state.totals);
            state.kept = engine.kept();
        });
        live.end_text(is_cut ? "cancelled" : stop_reason_name(outcome.result.stop_reason),
                      std::ssize(outcome.result.tokens));
        if (is_cut)
            job.writer->fail(ApiError::stopping());
        else
            job.writer->finish(outcome);
        log(fmt::format("request {} {}: {}; {}", job.id, job.path, describe(outcome),
                        is_cut ? "cancelled" : stop_reason_name(outcome.result.stop_reason)));
    } catch (const std::exception& failure) {
        const bool is_cut = job.exchange->cancelled().load() && !answer.is_complete();
        status.update([&](StatusSnapshot& state) {
            state.running.reset();
            ++(is_cut ? state.totals.cancelled : state.totals.failed);
            state.kept = engine.kept();
        });
        live.end_text(is_cut ? "cancelled" : "failed", answer.n_tokens());
        job.writer->fail(ApiError::of(failure));
        log(is_cut ? fmt::format("request {} {}: cancelled", job.id, job.path)
                   : fmt::format("request {} failed: {}", job.id, failure.what()));
    }
}

}  // namespace slipstream::tools
