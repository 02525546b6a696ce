// Guesses from a corpus store (REST, He et al. 2023): the longest suffix of the path, 16 down to 2 tokens, that the
// store holds with something behind it; what follows there, by count.
//
// A node of a path keeps, for each length up to 16, the interval of suffix-array ranks of the path's last tokens: that
// of length l at a node is that of length l - 1 at its parent, narrowed by the node's token. So no search begins anew,
// and shorter suffixes are at hand where the longest has nothing to say. The root's intervals are carried along with
// the text in the same way. Nodes lie in an arena that lasts from one observation to the next; a cursor is an index
// into it.
//
// Own shape: the continuations of the root's match as a trie of at most 64 tokens, those of the highest counts (a
// child's count is at most its parent's, so best-first finds them), no deeper than 10. Deviation: where a match stands
// at more than 64 places, counts are estimated from 64 of them (corpus_file.h); REST counts up to 5000.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/sources/text_continuation.h"
#include "draft/tables/corpus_file.h"

namespace slipstream::draft {

struct CorpusOptions {
    std::filesystem::path path;
    std::int64_t vocab = 0;
    std::uint64_t tokenizer_fingerprint = 0;  // what the store was built with
};

class CorpusSource final : public TableSource {
public:
    static constexpr std::uint32_t kMinMatch = 2;
    static constexpr std::uint32_t kMaxMatch = 16;

    /// Opens the store. Throws IoError, FormatError, RequestError as CorpusFile does.
    explicit CorpusSource(const CorpusOptions& options);

    [[nodiscard]] std::string_view name() const override { return "corpus"; }
    /// Bins: length of the match (2, 3, 4-5, 6-8, 9-15, 16) x 1st, 2nd, later by count.
    [[nodiscard]] std::uint16_t n_bins() const override;

    /// At most kMaxMatch searches a token; of a long addition only the last kMaxMatch tokens matter.
    void observe(const Observation& observation) override;
    void reset() override;

    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    /// kNowhere behind a token that the corpus never holds.
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    /// Of the arena; the store is mapped, and fixed.
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    using Interval = CorpusFile::Interval;
    struct Node {
        std::uint32_t longest = 0;                        // suffix that stands anywhere
        std::array<Interval, kMaxMatch + 1> intervals{};  // [length], of the path's last tokens
    };
    struct Match {
        Interval interval;
        std::uint32_t length = 0;  // 0: none
    };
    /// A token of the own shape that is not in the tree yet, under a node that is.
    struct Branch {
        double score;
        std::int32_t parent;  // in the tree
        TokenId token;
        std::uint32_t depth;
        Interval parent_interval;
    };

    [[nodiscard]] Node behind(const Node& above, TokenId token) const;
    /// The longest suffix that anything follows.
    [[nodiscard]] Match match_of(const Node& node) const;
    void push_branches(const Branch& above, const Match& match, std::int64_t position, const PathNoise& noise);

    CorpusFile file_;
    std::vector<TokenId> recent_;  // the text's last kMaxMatch tokens
    std::size_t n_text_ = 0;
    std::vector<Node> nodes_;  // node 0: the committed text
    std::vector<Branch> branches_;
    TextContinuation continuation_;
};

}  // namespace slipstream::draft
