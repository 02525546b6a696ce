#include "runtime/text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "kernels/base/check.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/text_pattern.h"

namespace slipstream {

namespace {

/// Joins the segments of a text, the matches of a pattern and the text between them, as a SplitBehavior says. A segment
/// is held until the next one shows whether the two belong together.
template <typename Emit>
class SegmentJoiner {
public:
    SegmentJoiner(SplitBehavior behavior, Emit emit) : behavior_(behavior), emit_(std::move(emit)) {}

    void add(std::size_t begin, std::size_t end, bool is_match) {
        if (behavior_ == SplitBehavior::Removed && is_match) return;
        if (waiting_ && joins(is_match)) {
            end_ = end;
            // A match that was joined with the segment after it is not joined with another one.
            is_match_ = behavior_ != SplitBehavior::MergedWithNext && is_match;
            return;
        }
        flush();
        begin_ = begin;
        end_ = end;
        is_match_ = is_match;
        waiting_ = true;
    }
    void flush() {
        if (waiting_ && end_ > begin_) emit_(begin_, end_);
        waiting_ = false;
    }

private:
    [[nodiscard]] bool joins(bool is_match) const {
        switch (behavior_) {
            case SplitBehavior::Removed:
            case SplitBehavior::Isolated:
                return false;
            case SplitBehavior::Contiguous:
                return is_match == is_match_;
            case SplitBehavior::MergedWithPrevious:
                return is_match && !is_match_;
            case SplitBehavior::MergedWithNext:
                return !is_match && is_match_;
        }
        return false;
    }

    SplitBehavior behavior_;
    Emit emit_;
    std::size_t begin_ = 0, end_ = 0;
    bool is_match_ = false, waiting_ = false;
};

}  // namespace

PreTokenizer::Run::Run(const PreTokenizer& pre_tokenizer)
    : pre_tokenizer_(pre_tokenizer), scratch_(pre_tokenizer.steps_.size()) {
    for (std::size_t i = 0; i < scratch_.size(); ++i) {
        const PreTokenizerStep& step = pre_tokenizer.steps_[i];
        if (const auto* split = std::get_if<SplitStep>(&step)) scratch_[i].search.emplace(split->pattern);
        if (std::holds_alternative<ByteAlphabetStep>(step) && i + 1 < scratch_.size()) ends_in_alphabet_ = true;
    }
}

void PreTokenizer::Run::words(std::string_view text, PieceStart start, WordSink& sink) {
    if (text.empty()) return;
    sink_ = &sink;
    std::string shape;
    if (has_newer_characters(text)) shape = with_older_characters(text);
    pass(0, {text, shape.empty() ? text : std::string_view(shape), start});
}

void PreTokenizer::Run::pass(std::size_t step, const Piece& piece) {
    if (step == scratch_.size()) {
        if (!ends_in_alphabet_) {
            sink_->on_word(piece.text);
            return;
        }
        unspelt_.clear();
        const bool is_spelt = append_from_alphabet(piece.text, unspelt_);
        CHECK(is_spelt, "a word that is not in the byte alphabet");
        sink_->on_word(unspelt_);
        return;
    }
    Scratch& scratch = scratch_[step];
    const PreTokenizerStep& how = pre_tokenizer_.steps_[step];
    if (const auto* split_step = std::get_if<SplitStep>(&how)) {
        split(step, piece, *split_step);
    } else if (const auto* metaspace = std::get_if<MetaspaceStep>(&how)) {
        rewrite(step, piece, *metaspace);
    } else if (std::holds_alternative<PrefixSpaceStep>(how)) {
        if (piece.start == PieceStart::Inside || piece.text.starts_with(' ')) {
            pass(step + 1, piece);
            return;
        }
        scratch.text.assign(1, ' ').append(piece.text);
        pass_rewritten(step, piece);
    } else if (step + 1 == scratch_.size()) {  // the bytes would only be converted back
        pass(step + 1, piece);
    } else {
        scratch.text.clear();
        append_in_alphabet(piece.text, scratch.text);
        pass_rewritten(step, piece);
    }
}

void PreTokenizer::Run::split(std::size_t step, const Piece& piece, const SplitStep& how) {
    SegmentJoiner joiner(how.behavior, [&](std::size_t begin, std::size_t end) {
        const PieceStart start = begin == 0 ? piece.start : PieceStart::OfPart;
        pass(step + 1, {piece.text.substr(begin, end - begin), piece.shape.substr(begin, end - begin), start});
    });
    TextPattern::Search& search = *scratch_[step].search;
    search.begin(piece.shape);
    const bool match_is_delimiter = how.matches == SplitMatches::Delimiters;
    std::size_t done = 0;
    while (const auto match = search.next()) {
        if (match->begin > done) joiner.add(done, match->begin, !match_is_delimiter);
        joiner.add(match->begin, match->end, match_is_delimiter);
        done = match->end;
    }
    if (done < piece.text.size()) joiner.add(done, piece.text.size(), !match_is_delimiter);
    joiner.flush();
}

void PreTokenizer::Run::rewrite(std::size_t step, const Piece& piece, const MetaspaceStep& how) {
    std::string& text = scratch_[step].text;
    text.clear();
    const bool may_prepend = how.prepend == MetaspaceStep::Prepend::Always
                                 ? piece.start != PieceStart::Inside
                                 : how.prepend == MetaspaceStep::Prepend::First && piece.start == PieceStart::OfText;
    const bool begins_so = piece.text.starts_with(' ') || piece.text.starts_with(how.replacement);
    if (may_prepend && !begins_so) text += how.replacement;
    for (const char c : piece.text) {
        if (c == ' ')
            text += how.replacement;
        else
            text += c;
    }
    pass_rewritten(step, piece);
}

void PreTokenizer::Run::pass_rewritten(std::size_t step, const Piece& piece) {
    Scratch& scratch = scratch_[step];
    const bool had_newer = piece.shape.data() != piece.text.data();
    if (had_newer) scratch.shape = with_older_characters(scratch.text);
    pass(step + 1, {scratch.text, had_newer ? scratch.shape : scratch.text, piece.start});
}

}  // namespace slipstream
