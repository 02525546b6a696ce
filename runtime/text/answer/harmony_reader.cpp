#include "runtime/text/answer/harmony_reader.h"

#include <algorithm>
#include <array>

namespace slipstream {

namespace {

using Kind = AnswerPiece::Kind;

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kEnd = "<|end|>";
constexpr std::string_view kCall = "<|call|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kTo = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kParagraph = "\n\n";
// Limits a header, in bytes: longer than any with a name that a request can offer.
constexpr std::size_t kMostHeaderBytes = 512;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string_view without_space(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    return text;
}

/// How a text relates to some marks: it is one, or it can become one.
enum class Match : std::uint8_t { None, Begins, Whole };
template <std::size_t n>
Match match(std::string_view text, const std::array<std::string_view, n>& marks) {
    if (std::ranges::find(marks, text) != marks.end()) return Match::Whole;
    const auto begins = [&](std::string_view mark) { return mark.starts_with(text); };
    return std::ranges::any_of(marks, begins) ? Match::Begins : Match::None;
}

// Returns the word after `mark` in a header, up to white space or "<"; empty if the mark is not there.
std::string_view word_after(std::string_view header, std::string_view mark) {
    const std::size_t at = header.find(mark);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = header.substr(at + mark.size());
    return rest.substr(0, std::min(rest.find_first_of(" \t\r\n<"), rest.size()));
}

}  // namespace

void HarmonyReader::push(char c, std::vector<AnswerPiece>& out) {
    switch (state_) {
        case State::First:
            return push_first(c, out);
        case State::Header:
            return push_header(c, out);
        case State::Text:
            return push_text(c, out);
        case State::Call:
            return push_call(c, out);
        case State::Between:
            return push_between(c, out);
    }
}

void HarmonyReader::finish(std::vector<AnswerPiece>& out) {
    if (state_ == State::Between && without_space(held_).empty()) return;
    if (state_ != State::Text) kind_ = Kind::Content;
    flush(out);
}

void HarmonyReader::push_first(char c, std::vector<AnswerPiece>& out) {
    constexpr std::array kBegin{kStart, kChannel, kMessage, kTo};
    held_ += c;
    const std::string_view text = without_space(held_);
    switch (match(text, kBegin)) {
        case Match::None:
            return become_content(out);
        case Match::Begins:
            return;
        case Match::Whole:
            state_ = State::Header;
            if (text == kMessage) begin_message(out);
    }
}

void HarmonyReader::push_header(char c, std::vector<AnswerPiece>& out) {
    held_ += c;
    if (held_.ends_with(kMessage)) return begin_message(out);
    if (held_.size() >= kMostHeaderBytes) become_content(out);
}

// Begins the message whose header is held_.
void HarmonyReader::begin_message(std::vector<AnswerPiece>& out) {
    const std::string_view header = std::string_view(held_).substr(0, held_.size() - kMessage.size());
    const std::string_view recipient = word_after(header, kTo);
    const std::string_view channel = word_after(header, kChannel);
    if (!recipient.empty() && reads_calls_) {
        name_ = recipient.starts_with(kFunctions) ? recipient.substr(kFunctions.size()) : recipient;
        arguments_.reset();
        state_ = State::Call;
        if (name_.empty()) become_content(out);
        return;
    }
    state_ = State::Text;
    is_at_message_start_ = true;
    kind_ = recipient.empty() && channel == "analysis" ? Kind::Thought : Kind::Content;
    const bool is_understood = recipient.empty() && (channel.empty() || channel == "analysis" ||
                                                     channel == "commentary" || channel == "final");
    if (!is_understood) return flush(out);
    held_.clear();
    n_skipped_ = 0;
}

void HarmonyReader::push_text(char c, std::vector<AnswerPiece>& out) {
    constexpr std::array kMarks{kStart, kEnd};
    held_ += c;
    switch (match(held_, kMarks)) {
        case Match::Begins:
            return;
        case Match::Whole:
            end_message();
            if (held_ == kStart) {
                state_ = State::Header;
                return;
            }
            state_ = State::Between;
            held_.clear();
            n_skipped_ = 0;
            return;
        case Match::None:
            break;
    }
    // The last byte may begin another mark.
    if (held_.size() == 1) return flush(out);
    held_.pop_back();
    flush(out);
    push_text(c, out);
}

void HarmonyReader::push_call(char c, std::vector<AnswerPiece>& out) {
    held_ += c;
    if (!arguments_) {
        if (is_space(c)) return;
        arguments_.emplace();
    }
    switch (arguments_->push(c)) {
        case JsonObjectScanner::Step::More:
            return;
        case JsonObjectScanner::Step::Failed:
            return become_content(out);
        case JsonObjectScanner::Step::Done:
            out.push_back({.kind = Kind::Call, .text = arguments_->text(), .name = name_});
            held_.clear();
            n_skipped_ = 0;
            state_ = State::Between;
            last_kind_.reset();
    }
}

void HarmonyReader::push_between(char c, std::vector<AnswerPiece>& out) {
    constexpr std::array kMarks{kStart, kEnd, kCall};
    held_ += c;
    const std::string_view text = without_space(held_);
    switch (match(text, kMarks)) {
        case Match::None:
            return become_content(out);
        case Match::Begins:
            return;
        case Match::Whole:
            if (text == kStart) {
                state_ = State::Header;
                return;
            }
            held_.clear();
            n_skipped_ = 0;
    }
}

void HarmonyReader::end_message() {
    if (!is_at_message_start_) last_kind_ = kind_;
}

// What is held back turned out to be no header and no call.
void HarmonyReader::become_content(std::vector<AnswerPiece>& out) {
    state_ = State::Text;
    kind_ = Kind::Content;
    is_at_message_start_ = true;
    // Its last byte may begin a mark.
    const char last = held_.back();
    held_.pop_back();
    flush(out);
    push_text(last, out);
}

void HarmonyReader::flush(std::vector<AnswerPiece>& out) {
    emit(std::string_view(held_).substr(std::min(n_skipped_, held_.size())), out);
    held_.clear();
    n_skipped_ = 0;
}

void HarmonyReader::emit(std::string_view text, std::vector<AnswerPiece>& out) {
    if (text.empty()) return;
    if (out.empty() || out.back().kind != kind_ || kind_ == Kind::Call)
        out.push_back({.kind = kind_, .text = {}, .name = {}});
    if (is_at_message_start_ && last_kind_ == kind_) out.back().text += kParagraph;
    is_at_message_start_ = false;
    out.back().text += text;
}

}  // namespace slipstream
