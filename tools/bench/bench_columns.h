// Compares plain decoding with each --draft on the same texts in one run, in turn (plain, A, B, plain, A, B, ...), so
// that slow changes of the machine affect all columns. Each column has its own loop and drafter; the columns share the
// model, its KV cache and the draft model.
//
// Invariant: with exact verification all columns generate the same tokens, so the samples of a turn are pairs. A text
// that differs from that of plain decoding is counted.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tools/bench/bench_figures.h"
#include "tools/bench/bench_loop.h"
#include "tools/bench/bench_request.h"
#include "tools/bench/bench_talk.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

enum class BenchSample : std::uint8_t { WarmUp, Measured };

class BenchColumns {
public:
    /// Loads the model and puts its figures into `result`. `text_tokens`: length of the longest text. Throws what
    /// loading and making drafters throw.
    BenchColumns(BenchResult& result, const BenchRequest& request, PlacedModel placed, std::int64_t text_tokens,
                 const std::vector<TokenId>& end_tokens, CommandContext& context);

    /// Reads the KV of the session's prompt and keeps it: later conversations begin with this prompt.
    void restore(TextSession& session, const EngineCallbacks& callbacks);

    /// Runs one conversation in each column, from an empty cache or after a session's prompt: generates
    /// 1 + `decode_tokens` tokens after the prompt of each turn. Throws Interrupted after a signal.
    void converse(const BenchTalk& talk, std::int64_t decode_tokens, BenchSample sample, const BenchProgress& progress);

    /// Reads `text` into an empty cache, by plain decoding. If it was measured once, put_figures() reports the prefill
    /// of such texts, not that of the prompts. Throws Interrupted after a signal.
    void prefill(std::vector<TokenId> text, BenchSample sample, const BenchProgress& progress);

    /// Puts the phases of plain decoding and the columns of the drafts into `result`.
    void put_figures(BenchResult& result) const;
    /// Reports a note if most texts of plain decoding repeat earlier text, which makes drafting look better.
    void report_repeats(Console& console) const;

private:
    struct Column {
        EngineDrafter* drafter;
        DraftFigures figures;
        BenchLoop loop;
    };

    std::vector<TokenId> converse_in(Column& column, const BenchTalk& talk, std::int64_t decode_tokens,
                                     BenchSample sample, const BenchProgress& progress);

    bool keeps_tables_;
    std::optional<LoadedModel> model_;
    std::int64_t n_kept_ = 0;           // committed positions that all conversations begin with, kept in the KV cache
    std::vector<TokenId> plain_text_;   // prompt and generated tokens of plain decoding's last text
    std::vector<PhaseSample> prefill_;  // samples of prefill(); empty: the prompts' prefill is reported
    std::int64_t n_plain_ = 0;          // measured texts of plain decoding
    std::int64_t n_repeating_ = 0;      // number of those of n_plain_ that mostly repeat earlier text
    std::optional<Drafting> drafting_;
    std::unique_ptr<ModelRunner> runner_;  // all columns use it, in turn
    std::vector<Column> columns_;          // plain first
};

}  // namespace slipstream::tools
