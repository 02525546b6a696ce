// Interface of a table source: it learns from committed tokens and proposes the tokens that may follow a path.
//
// A path is walked by cursors, 64 bits that only their source interprets: root() is the cursor after the committed
// sequence, advance() moves it past one more token, propose() lists the tokens that may come next. The tree builder
// asks all sources in this way and merges their proposals (tree_builder.h). Sources with a tree of their own paper also
// implement PaperTree (paper_tree.h). Whatever a source proposes, the output of the target stays the same.
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

/// One draft token that a source proposes. Members have no initial values, since arrays of proposals are scratch memory
/// that is used for microseconds.
struct Proposal {
    TokenId token;
    /// The source's estimate, in (0, 1), that the target's next token is `token`, if the path is right and the noise is
    /// unknown. Calibration corrects it by what was accepted.
    float probability;
    /// Calibration bin, in [0, TableSource::n_bins()): the kind of proposal, such as its rank or the length of a match.
    /// Estimates of one bin are corrected together.
    std::uint16_t bin;
};

/// A source's position on a path. Only the source that made it can interpret it.
using Cursor = std::uint64_t;
/// The cursor of a path after which a source proposes nothing, with any tokens that follow.
inline constexpr Cursor kNowhere = ~Cursor{0};

/// A source that answers in well under a microsecond: a table in host memory, read by the CPU. Not thread-safe.
class TableSource {
public:
    virtual ~TableSource() = default;

    /// Returns the source's name, as --draft spells it.
    [[nodiscard]] virtual std::string_view name() const = 0;
    /// Returns the number of calibration bins of the source's proposals, at least 1.
    [[nodiscard]] virtual std::uint16_t n_bins() const { return 1; }

    /// Learns from an observation. If observation.n_new == text.size(), a new sequence begins; what was learnt from
    /// earlier ones may be kept. Otherwise observation.text is the previous sequence with n_new tokens appended or,
    /// after a cut (n_new == 0), a prefix of it. After a cut the source may keep what it learnt from the removed
    /// tokens, but it must not keep positions past the end of the text. The first observation after construction or
    /// reset() may have any text. `logits` may be empty although there is a tree (a replay has no logits).
    virtual void observe(const Observation& observation) = 0;
    /// Returns what observe() reads of each row of logits, for devices on which reading a row costs time.
    [[nodiscard]] virtual LogitRequest logit_request() const { return {}; }
    /// Sets the temperature at which the target samples from now on (0: greedy). Estimates follow it, and what was
    /// learnt stays. Call only between sequences.
    virtual void set_temperature(double /*temperature*/) {}
    /// Forgets everything learnt, as after construction. Fixed tables (frozen, corpus, model n-grams) stay.
    virtual void reset() = 0;

    /// Returns the cursor after the committed sequence `text` (the one that observe() saw last, not empty).
    [[nodiscard]] virtual Cursor root(std::span<const TokenId> text) = 0;
    /// Returns the cursor one token further. `cursor` must not be kNowhere; `token` may come from any source. Cursors
    /// are valid until the next root(), observe() or reset().
    [[nodiscard]] virtual Cursor advance(Cursor cursor, TokenId token) = 0;
    /// Writes proposals for the token after `cursor` (not kNowhere) to `out`: distinct tokens, best first by
    /// noise.rank(). `position` is the absolute position of that token. Returns how many were written, at most
    /// out.size(). Allocates nothing.
    [[nodiscard]] virtual std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                              std::span<Proposal> out) = 0;

    /// Returns the bytes of the source's memory, without parts whose size is fixed.
    [[nodiscard]] virtual std::size_t memory_bytes() const = 0;

    /// Writes what is kept between runs as one section, or nothing if there is nothing worth keeping.
    virtual void save(TableWriter&) const {}
    /// Reads what save() wrote. Throws FormatError if it is damaged or was made with other settings; the source is then
    /// unchanged.
    virtual void load(TableReader&) {}
};

}  // namespace slipstream::draft
