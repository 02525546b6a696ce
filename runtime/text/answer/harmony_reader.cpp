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
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kAssistant = "assistant";
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

// Returns the text up to white space or "<".
std::string_view first_word(std::string_view text) {
    return text.substr(0, text.find_first_of(" \t\r\n<"));
}

constexpr std::array<std::string_view, 3> kChannels{"analysis", "commentary", "final"};

// Returns whether one of the texts begins with the other.
bool agree(std::string_view one, std::string_view other) {
    return one.starts_with(other) || other.starts_with(one);
}

// Returns whether `text`, which a header may begin with, begins the next message of the assistant, after the text of
// one or between two.
bool is_cut_header(std::string_view text) {
    text = without_space(text);
    if (text.starts_with(kEnd)) {
        text = without_space(text.substr(kEnd.size()));
        if (!text.starts_with(kStart)) return true;
    }
    if (!text.starts_with(kStart)) return false;
    text.remove_prefix(kStart.size());
    const std::string_view role = first_word(text);
    return role.empty() || role == kAssistant || (role == text && kAssistant.starts_with(role));
}

// What a text is: a header, that of another role, what may become one, or neither.
enum class Match : std::uint8_t { None, Begins, Foreign, Whole };

// Reads a header, as harmony_reader.h has it, with what may stand before it: white space at the beginning of the
// answer; <|end|>, after a text.
class HeaderMatcher {
public:
    explicit HeaderMatcher(std::string_view text) : rest_(text) {}

    Match match_first() {
        skip_space();
        return match_header(take(kStart));
    }
    Match match_after_text() {
        if (take(kEnd)) skip_space();
        return match_next();
    }
    Match match_after_call() {
        skip_space();
        for (const std::string_view mark : {kCall, kEnd}) take(mark);  // they may begin there
        return match_next();
    }

    [[nodiscard]] std::string_view recipient() const { return recipient_; }
    [[nodiscard]] std::string_view channel() const { return channel_; }

private:
    // Models sometimes leave "<|start|>assistant" out.
    Match match_next() {
        if (take(kStart)) return match_header(true);
        return agree(rest_, kChannel) ? match_header(false) : failed();
    }
    // Reads the header after `<|start|>`, or a header without one.
    Match match_header(bool has_start) {
        const std::string_view role = has_start ? take_word() : std::string_view();
        skip_space();
        if (take(kTo) && !take_recipient()) return failed();
        const bool has_channel = take(kChannel);
        if (has_channel && !take_channel()) return failed();
        if (has_start && !has_channel && recipient_.empty()) return failed();
        if (!take(kMessage) || !rest_.empty()) return failed();
        return role.empty() || role == kAssistant ? Match::Whole : Match::Foreign;
    }
    bool take_recipient() {
        recipient_ = take_word();
        if (recipient_.starts_with(kFunctions)) recipient_.remove_prefix(kFunctions.size());
        skip_space();
        return !recipient_.empty();
    }
    bool take_channel() {
        channel_ = take_word();
        if (std::ranges::find(kChannels, channel_) == kChannels.end()) {
            is_cut_ |= rest_.empty() && std::ranges::any_of(kChannels, [&](std::string_view known) {
                           return known.starts_with(channel_);
                       });
            return false;
        }
        skip_space();
        if (take(kTo) && !take_recipient()) return false;
        take(kConstrain);
        take_word();  // the type of the text
        skip_space();
        return true;
    }

    bool take(std::string_view mark) {
        if (!rest_.starts_with(mark)) {
            is_cut_ |= mark.starts_with(rest_);
            return false;
        }
        rest_.remove_prefix(mark.size());
        return true;
    }
    std::string_view take_word() {
        const std::string_view word = first_word(rest_);
        rest_.remove_prefix(word.size());
        is_cut_ |= rest_.empty();
        return word;
    }
    void skip_space() { rest_ = without_space(rest_); }
    [[nodiscard]] Match failed() const { return is_cut_ ? Match::Begins : Match::None; }

    std::string_view rest_;
    bool is_cut_ = false;  // the text ends inside a part that may stand there
    std::string_view recipient_, channel_;
};

}  // namespace

void HarmonyReader::push(char c, std::vector<AnswerPiece>& out) {
    held_ += c;
    if (state_ == State::Call) return read_call(c, out);
    read_held(out);
}

void HarmonyReader::finish(std::vector<AnswerPiece>& out) {
    if (state_ == State::Between && without_space(held_).empty()) return;
    if ((state_ == State::Text || state_ == State::Between) && is_cut_header(held_)) return;
    if (state_ != State::Text) kind_ = Kind::Content;
    emit_held(held_.size(), out);
}

// Emits the beginning of held_ that cannot be a header; what may still become one stays. push() adds one byte at a
// time, so a header that is complete ends held_.
void HarmonyReader::read_held(std::vector<AnswerPiece>& out) {
    while (!held_.empty()) {
        const std::string_view text = without_space(held_);
        if (state_ == State::Between && (text == kCall || text == kEnd)) return drop_held();
        HeaderMatcher header(held_);
        const Match match = held_.size() > kMostHeaderBytes ? Match::None
                            : state_ == State::First        ? header.match_first()
                            : state_ == State::Text         ? header.match_after_text()
                                                            : header.match_after_call();
        if (match == Match::Begins) return;
        if (match == Match::Whole) return begin_message(header.recipient(), header.channel(), out);
        if (state_ != State::Text) become_content();
        emit_held(match == Match::Foreign ? held_.size() : std::min(held_.find('<', 1), held_.size()), out);
    }
}

// Begins the message whose header is held_.
void HarmonyReader::begin_message(std::string_view recipient, std::string_view channel, std::vector<AnswerPiece>& out) {
    if (recipient.empty()) {
        state_ = State::Text;
        kind_ = channel == "analysis" ? Kind::Thought : Kind::Content;
        is_at_message_start_ = true;
        drop_held();
    } else if (reads_calls_) {
        state_ = State::Call;
        name_ = recipient;
        arguments_.reset();
    } else {
        become_content();
        emit_held(held_.size(), out);
    }
}

void HarmonyReader::read_call(char c, std::vector<AnswerPiece>& out) {
    if (!arguments_) {
        if (is_space(c)) return;
        arguments_.emplace();
    }
    switch (arguments_->push(c)) {
        case JsonObjectScanner::Step::More:
            return;
        case JsonObjectScanner::Step::Failed:
            become_content();
            emit_held(held_.size() - 1, out);  // the last byte may begin a header
            return read_held(out);
        case JsonObjectScanner::Step::Done:
            out.push_back({.kind = Kind::Call, .text = arguments_->text(), .name = name_});
            drop_held();
            state_ = State::Between;
            last_kind_.reset();
    }
}

// What is held back turned out to be no header and no call: it is content, without an empty line before it.
void HarmonyReader::become_content() {
    state_ = State::Text;
    kind_ = Kind::Content;
    is_at_message_start_ = false;
}

void HarmonyReader::emit_held(std::size_t n, std::vector<AnswerPiece>& out) {
    const std::size_t n_skipped = std::min(n_skipped_, n);
    emit(std::string_view(held_).substr(n_skipped, n - n_skipped), out);
    held_.erase(0, n);
    n_skipped_ -= n_skipped;
}

void HarmonyReader::drop_held() {
    held_.clear();
    n_skipped_ = 0;
}

void HarmonyReader::emit(std::string_view text, std::vector<AnswerPiece>& out) {
    if (text.empty()) return;
    if (out.empty() || out.back().kind != kind_ || kind_ == Kind::Call)
        out.push_back({.kind = kind_, .text = {}, .name = {}});
    if (is_at_message_start_ && last_kind_ == kind_) out.back().text += kParagraph;
    is_at_message_start_ = false;
    last_kind_ = kind_;
    out.back().text += text;
}

}  // namespace slipstream
