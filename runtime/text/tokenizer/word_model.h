// How one word becomes ids: the "model" of a tokenizer.json. One kind a class; each owns what it looks words up in and
// refers to the vocabulary for spellings.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/pair_merger.h"
#include "runtime/text/tokenizer/unigram_segmenter.h"

namespace slipstream {

/// Of one thread; grows to the longest word and stays.
struct WordScratch {
    std::vector<TokenId> symbols;
    PairMerger::Scratch merger;
    UnigramSegmenter::Scratch segmenter;
    std::vector<UnigramSegmenter::Segment> segments;
};

class WordModel {
public:
    virtual ~WordModel() = default;
    /// "byte-level BPE", ...
    [[nodiscard]] virtual std::string_view kind() const = 0;
    /// Appends the ids of `word`: valid UTF-8, not empty, less than 2^31 bytes.
    virtual void encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const = 0;
    /// Appends the id of a byte that is part of no character.
    virtual void encode_byte(unsigned char byte, std::vector<TokenId>& out) const = 0;
};

}  // namespace slipstream
