// Plain decoding and each --draft side by side: the same texts, in one run, in turn (plain, A, B, plain, A, B, ...), so
// that whatever drifts hits all alike. Each column has its own loop and drafter; model, cache
// and draft model are shared.
//
// Invariant: under exact verification all columns generate the same tokens, so that samples of one turn are pairs; a
// column that differs is counted.
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
    /// `text_tokens`: of the longest text. Loads the model, as `result` says. Throws what loading and making drafters
    /// throw.
    BenchColumns(BenchResult& result, const BenchRequest& request, PlacedModel placed, std::int64_t text_tokens,
                 const std::vector<TokenId>& end_tokens, CommandContext& context);

    /// From now on conversations begin with the session's prompt, whose KV is read here and kept.
    void restore(TextSession& session, const EngineCallbacks& callbacks);

    /// One conversation in each column, from an empty cache or behind a session's prompt: behind the prompt of each
    /// turn 1 + `decode_tokens` are generated. Throws Interrupted after a signal.
    void converse(const BenchTalk& talk, std::int64_t decode_tokens, BenchSample sample);

    /// Phases of plain decoding and the columns of the drafts.
    void put_figures(BenchResult& result) const;
    /// A note where most texts of plain decoding say again what stood before: guessing looks better there.
    void report_repeats(Console& console) const;

private:
    struct Column {
        EngineDrafter* drafter;
        DraftFigures figures;
        BenchLoop loop;
    };

    std::vector<TokenId> converse_in(Column& column, const BenchTalk& talk, std::int64_t decode_tokens,
                                     BenchSample sample);

    bool keeps_tables_;
    std::optional<LoadedModel> model_;
    std::int64_t n_kept_ = 0;          // tokens that all conversations begin with
    std::vector<TokenId> plain_text_;  // the last one, prompt and all
    std::int64_t n_plain_ = 0;         // texts of plain decoding that were measured
    std::int64_t n_repeating_ = 0;     // of them
    std::optional<Drafting> drafting_;
    std::unique_ptr<ModelRunner> runner_;  // all columns use it, in turn
    std::vector<Column> columns_;          // plain first
};

}  // namespace slipstream::tools
