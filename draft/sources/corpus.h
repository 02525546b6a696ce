// The source "corpus" (REST, He et al. 2023): finds the longest suffix of the path, 16 down to 2 tokens, that occurs in
// a corpus store with a token after it, and proposes the tokens that follow there, by count.
//
// A node of a path keeps, for each length up to 16, the interval of suffix-array ranks of the path's last tokens. The
// interval for length l at a node is the interval for length l - 1 at its parent, narrowed by the node's token. So no
// search starts from the beginning, and shorter suffixes are available if the longest has no followers. The root's
// intervals follow the committed sequence in the same way. Nodes are in an arena that lasts until the next observation;
// a cursor is an index into it.
//
// The source's own tree: the continuations of the root's match as a trie of at most 64 draft tokens, those with the
// highest counts, at most 10 deep. A child's count is at most its parent's, so best-first search finds them. Deviation
// from REST, which counts up to 5000 places: if a match occurs at more than 64 places, counts are estimated from 64 of
// them (corpus_file.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"
#include "draft/sources/text_continuation.h"
#include "draft/tables/corpus_file.h"

namespace slipstream::draft {

/// The store, and the model that it must fit.
struct CorpusOptions {
    std::filesystem::path path;
    std::int64_t vocab = 0;
    std::uint64_t tokenizer_fingerprint = 0;  // fingerprint of the tokenizer with which the store must have been built
};

class CorpusSource final : public TableSource, public PaperTree {
public:
    static constexpr std::uint32_t kMinMatch = 2;   // shortest suffix that is used, in tokens
    static constexpr std::uint32_t kMaxMatch = 16;  // longest suffix that is looked for, in tokens

    /// Opens the store. Throws IoError, FormatError or RequestError as CorpusFile does.
    explicit CorpusSource(const CorpusOptions& options);

    [[nodiscard]] std::string_view name() const override { return "corpus"; }
    /// Returns the number of bins: length of the match (2, 3, 4-5, 6-8, 9-15, 16) x rank by count (1st, 2nd, later).
    [[nodiscard]] std::uint16_t n_bins() const override;

    /// Makes at most kMaxMatch searches per token; of a long addition only the last kMaxMatch tokens are searched for.
    void observe(const Observation& observation) override;
    void reset() override;

    [[nodiscard]] Cursor root(std::span<const TokenId> text) override;
    /// Returns the cursor one token further; kNowhere if the corpus does not contain `token`.
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override;
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    void propose_shape(TokenTree& tree, const ShapeRequest& request) override;

    /// Returns the bytes of the arena and of the own tree's scratch memory. The store is mapped, and its size is fixed.
    [[nodiscard]] std::size_t memory_bytes() const override;

private:
    using Interval = CorpusFile::Interval;
    /// Matches of one path: its suffixes of all lengths in the store.
    struct Node {
        std::uint32_t longest = 0;                        // length of the longest suffix that occurs; 0: none
        std::array<Interval, kMaxMatch + 1> intervals{};  // [length]: places of the path's last `length` tokens
    };
    struct Match {
        Interval interval;
        std::uint32_t length = 0;  // length of the match in tokens; 0: no match
    };
    /// A candidate of the own tree: a token that is not in the tree yet, under a node that is.
    struct Branch {
        double score;     // relative weight of the path: the product of its tokens' shares, with noise
        TreeNode parent;  // node of the tree
        TokenId token;
        std::uint32_t depth;       // depth of the candidate in the tree
        Interval parent_interval;  // places of the match at `parent`, without the token
    };

    // Returns the node of the path that continues `above` by `token`; its `longest` is 0 if the store does not contain
    // `token`.
    [[nodiscard]] Node behind(const Node& above, TokenId token) const;
    /// Returns the longest suffix of the node's path, of at least kMinMatch tokens, that a token follows in the store;
    /// length 0 if there is none.
    [[nodiscard]] Match match_of(const Node& node) const;
    void push_branches(const Branch& above, const Match& match, std::int64_t position, const PathNoise& noise);

    CorpusFile file_;
    std::vector<TokenId> recent_;   // the last kMaxMatch tokens of the text
    std::size_t n_text_ = 0;        // length of the observed text
    std::vector<Node> nodes_;       // nodes of all cursors; node 0: after the committed sequence
    std::vector<Branch> branches_;  // heap, best first: scratch of propose_shape()
    TextContinuation continuation_;
};

}  // namespace slipstream::draft
