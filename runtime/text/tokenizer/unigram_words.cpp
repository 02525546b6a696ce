#include "runtime/text/tokenizer/unigram_words.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/character_bpe.h"

namespace slipstream {

namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst piece

std::vector<UnigramSegmenter::Piece> pieces_of(const TokenVocabulary& vocabulary, const std::vector<double>& scores) {
    std::vector<UnigramSegmenter::Piece> pieces;
    pieces.reserve(scores.size());
    for (std::size_t id = 0; id < scores.size(); ++id) {
        const std::string_view text = vocabulary.spelling(static_cast<TokenId>(id));
        if (!text.empty()) pieces.push_back({.text = text, .score = scores[id], .id = static_cast<TokenId>(id)});
    }
    return pieces;
}

double lowest(const std::vector<double>& scores) {
    return scores.empty() ? 0.0 : *std::ranges::min_element(scores);
}

}  // namespace

UnigramWords::UnigramWords(const TokenVocabulary& vocabulary, StringIndex index, const std::vector<double>& scores,
                           const Options& options, std::string_view name)
    : vocabulary_(vocabulary),
      index_(std::move(index)),
      segmenter_(pieces_of(vocabulary, scores), lowest(scores) - kUnknownPenalty, UnigramSegmenter::Sums::Double),
      options_(options) {
    byte_ids_.fill(-1);
    if (options_.byte_fallback) byte_ids_ = byte_fallback_ids(vocabulary_, index_);
    if (!options_.unk)
        throw FormatError(fmt::format("{}: the unigram model has no unknown token; some texts have no ids", name));
}

void UnigramWords::encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const {
    scratch.segments.clear();
    segmenter_.segment(word, scratch.segmenter, scratch.segments);
    std::size_t at = 0, unknown_begin = 0;
    for (const UnigramSegmenter::Segment& segment : scratch.segments) {
        // The unknown token's own spelling counts as unknown, as in the original.
        if (segment.id != UnigramSegmenter::kUnknown && segment.id != options_.unk) {
            encode_unknown(word.substr(unknown_begin, at - unknown_begin), out);
            out.push_back(segment.id);
            unknown_begin = at + segment.length;
        }
        at += segment.length;
    }
    encode_unknown(word.substr(unknown_begin), out);
}

void UnigramWords::encode_unknown(std::string_view run, std::vector<TokenId>& out) const {
    if (run.empty()) return;
    if (const TokenId id = index_.find(run, [this](TokenId other) { return vocabulary_.spelling(other); }); id >= 0) {
        out.push_back(id);
        return;
    }
    const auto byte_id = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::ranges::all_of(run, [&](char c) { return byte_id(c) >= 0; }))
        for (const char c : run) out.push_back(byte_id(c));
    else
        out.push_back(*options_.unk);
}

void UnigramWords::encode_byte(unsigned char byte, std::vector<TokenId>& out) const {
    out.push_back(byte_ids_[byte] >= 0 ? byte_ids_[byte] : *options_.unk);
}

}  // namespace slipstream
