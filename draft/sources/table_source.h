// What one kind of guesses is: a source learns from what is committed and proposes the children of a path.
//
// A source walks a path by cursors, 64 bits that mean something to it alone: root() stands behind the committed text,
// advance() goes one token down, propose() lists what it believes comes next. The tree builder asks all sources so and
// merges their answers (tree_builder.h); propose_shape() is the tree of the source's own paper, for a source that runs
// alone. Every source keeps to E2: whatever it proposes, the output stays the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "draft/path_noise.h"
#include "draft/tables/table_file.h"
#include "runtime/loop/proposer.h"

namespace slipstream::draft {

/// One child that a source believes in. Without initial values: arrays of them are scratch for microseconds.
struct Proposal {
    TokenId token;
    /// The source's own estimate that the target's next token is this one, were the path right and the noise unknown:
    /// in (0, 1). What it is worth in truth is learnt by calibration.
    float probability;
    /// Which kind of guess it is, in [0, TableSource::n_bins()): what calibration tells apart, such as rank or match
    /// length.
    std::uint16_t bin;
};

/// Where a source stands on a path.
using Cursor = std::uint64_t;
/// It has nothing to say here, nor further down.
inline constexpr Cursor kNowhere = ~Cursor{0};

/// What a source's own tree may be.
struct ShapeRequest {
    std::span<const TokenId> text;  // all committed tokens, the tree's root last
    std::int64_t budget = 1;        // most nodes, node 0 included
    std::int64_t max_depth = 0;     // of any node
    const PathNoise* noise = nullptr;
};

/// The request's noise; none where it names none.
[[nodiscard]] inline const PathNoise& noise_of(const ShapeRequest& request) {
    static const PathNoise none;
    return request.noise != nullptr ? *request.noise : none;
}

/// A source that answers in well under a microsecond: a table, on the CPU. Not thread-safe.
class TableSource {
public:
    virtual ~TableSource() = default;

    /// As --draft spells it.
    [[nodiscard]] virtual std::string_view name() const = 0;
    /// Kinds of guesses that calibration tells apart, at least 1.
    [[nodiscard]] virtual std::uint16_t n_bins() const { return 1; }

    /// Learns. An observation of a whole text (n_new == text.size()) begins a new one: what was learnt from texts
    /// before may serve on. Otherwise observation.text is the text before with n_new tokens behind it, or, after a cut
    /// (n_new == 0), a beginning of it: what was learnt from the tokens that are gone may stay learnt, but positions
    /// kept by the source must not point behind the text. The first observation after construction or reset() may find
    /// any text. `logits` may be empty although there is a tree (a replay knows no logits).
    virtual void observe(const Observation& observation) = 0;
    /// What observe() looks at of every row of logits, on devices where that is not free.
    [[nodiscard]] virtual LogitRequest logit_request() const { return {}; }
    /// The target samples at this temperature from now on, 0 if it is greedy: estimates follow it, and what was learnt
    /// stays. Between texts.
    virtual void set_temperature(double /*temperature*/) {}
    /// Forgets everything learnt, as after construction; fixed tables (frozen, corpus, model n-grams) stay.
    virtual void reset() = 0;

    /// Behind the committed text (what observe() saw last, not empty).
    [[nodiscard]] virtual Cursor root(std::span<const TokenId> text) = 0;
    /// One token further down from a cursor that is not kNowhere, whoever proposed the token. Cursors are valid until
    /// the next observe() or reset().
    [[nodiscard]] virtual Cursor advance(Cursor cursor, TokenId token) = 0;
    /// Children at `cursor` (not kNowhere), which would stand at absolute `position`: distinct tokens, most likely
    /// first by noise.rank(), at most out.size(). Returns how many. Allocates nothing.
    [[nodiscard]] virtual std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                              std::span<Proposal> out) = 0;

    /// Grows `tree` (node 0 only) as the source's own paper does. Where there is noise, ranks by it (E2).
    virtual void propose_shape(TokenTree& tree, const ShapeRequest& request) = 0;
    /// Hangs nodes that cost nothing where verification is free, under a finished tree. Most sources do nothing.
    virtual void fill_unused_nodes(TokenTree&, const ShapeRequest&) {}

    /// Bytes that the source holds, as far as it grows.
    [[nodiscard]] virtual std::size_t memory_bytes() const = 0;

    /// What to keep between runs: writes one section, or nothing where the source learns nothing worth keeping.
    virtual void save(TableWriter&) const {}
    /// Takes up what save() wrote. Throws FormatError where it is damaged or was made for other settings; the source is
    /// then as before.
    virtual void load(TableReader&) {}
};

}  // namespace slipstream::draft
