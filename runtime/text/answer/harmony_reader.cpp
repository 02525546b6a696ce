#include "runtime/text/answer/harmony_reader.h"

#include <algorithm>
#include <array>

namespace slipstream {

namespace {

using Kind = AnswerPiece::Kind;

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kEnd = "<|end|>";
constexpr std::string_view kEndOfMessage = "<|eom|>";
constexpr std::string_view kCall = "<|call|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kTo = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kSelf = "self", kUser = "user";
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

// Returns the mark at the end of a message.
std::string_view end_of_message(HarmonyReader::Dialect dialect) {
    return dialect == HarmonyReader::Dialect::Muse ? kEndOfMessage : kEnd;
}

// Returns whether `text`, which a header may begin with, begins the next message of the assistant, after the text of
// one or between two. `end` is the mark at the end of a message.
bool is_cut_header(std::string_view text, std::string_view end) {
    text = without_space(text);
    if (text.starts_with(end)) {
        text = without_space(text.substr(end.size()));
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
// answer; the end of a message, after a text.
class HeaderMatcher {
public:
    HeaderMatcher(HarmonyReader::Dialect dialect, std::string_view text)
        : rest_(text), is_muse_(dialect == HarmonyReader::Dialect::Muse), end_(end_of_message(dialect)) {}

    Match match_first() {
        skip_space();
        return match_header(take(kStart));
    }
    Match match_after_text() {
        const bool has_end = take(end_);
        if (has_end) skip_space();
        return match_next(has_end);
    }
    Match match_after_call() {
        skip_space();
        if (!is_muse_) take(kCall);
        take(end_);
        skip_space();
        return match_next(true);
    }

    [[nodiscard]] std::string_view recipient() const { return recipient_; }
    [[nodiscard]] std::string_view channel() const { return channel_; }

private:
    // Models sometimes leave "<|start|>assistant" out. `has_end`: whether the message before it has ended.
    Match match_next(bool has_end) {
        if (take(kStart)) return match_header(true);
        if (is_muse_) return has_end && agree(rest_, kTo) ? match_header(false) : failed();
        return agree(rest_, kChannel) ? match_header(false) : failed();
    }
    // Reads the header after `<|start|>`, or a header without one.
    Match match_header(bool has_start) {
        const std::string_view role = has_start ? take_word() : std::string_view();
        skip_space();
        if (take(kTo) && !take_recipient()) return failed();
        if (!is_muse_) {
            const bool has_channel = take(kChannel);
            if (has_channel && !take_channel()) return failed();
            if (has_start && !has_channel && recipient_.empty()) return failed();
        }
        if (!take(kMessage) || !rest_.empty()) return failed();
        return role.empty() || role == kAssistant ? Match::Whole : Match::Foreign;
    }
    bool take_recipient() {
        recipient_ = take_word();
        if (!is_muse_ && recipient_.starts_with(kFunctions)) recipient_.remove_prefix(kFunctions.size());
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
    bool is_muse_;
    std::string_view end_;  // the mark at the end of a message
    bool is_cut_ = false;   // the text ends inside a part that may follow
    std::string_view recipient_, channel_;
};

}  // namespace

void HarmonyReader::push(char c, std::vector<AnswerPiece>& out) {
    held_ += c;
    if (state_ == State::Call) return calls_ ? read_xml_calls(c, out) : read_call(c, out);
    read_held(out);
}

void HarmonyReader::finish(std::vector<AnswerPiece>& out) {
    if (state_ == State::Call && calls_ && calls_->is_between_calls()) return;
    if (state_ == State::Between && without_space(held_).empty()) return;
    if ((state_ == State::Text || state_ == State::Between) && is_cut_header(held_, end_of_message(dialect_))) return;
    if (state_ != State::Text) kind_ = Kind::Content;
    emit_held(held_.size(), out);
}

// Emits the beginning of held_ that cannot be a header; what may still become one stays. push() adds one byte at a
// time, so a header that is complete ends held_.
void HarmonyReader::read_held(std::vector<AnswerPiece>& out) {
    while (!held_.empty()) {
        const std::string_view text = without_space(held_);
        if (state_ == State::Between &&
            (text == end_of_message(dialect_) || (text == kCall && dialect_ != Dialect::Muse)))
            return drop_held();
        HeaderMatcher header(dialect_, held_);
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
    const bool is_muse = dialect_ == Dialect::Muse;
    const bool is_thought = is_muse ? recipient == kSelf : channel == "analysis";
    const bool reads_calls = !tools_.empty();
    if (recipient.empty() || (is_muse && (recipient == kSelf || recipient == kUser))) {
        may_be_text_ = is_muse && recipient.empty() && reads_calls;
        state_ = may_be_text_ ? State::Call : State::Text;
        kind_ = is_thought ? Kind::Thought : Kind::Content;
        is_at_message_start_ = true;
        if (may_be_text_) begin_xml_calls();
        drop_held();
    } else if (reads_calls) {
        state_ = State::Call;
        name_ = recipient;
        arguments_.reset();
        may_be_text_ = false;
        if (is_muse) begin_xml_calls();
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
            return fail_call(out);
        case JsonObjectScanner::Step::Done:
            out.push_back({.kind = Kind::Call, .text = arguments_->text(), .name = name_});
            drop_held();
            state_ = State::Between;
            last_kind_.reset();
    }
}

void HarmonyReader::begin_xml_calls() {
    calls_ = make_atem_call_reader(tools_);
    has_called_ = false;
}

void HarmonyReader::read_xml_calls(char c, std::vector<AnswerPiece>& out) {
    using Step = CallReader::Step;
    const Step step = calls_->push(c);
    if (step == Step::More) return;
    if (step == Step::Call || step == Step::LastCall) {
        out.push_back({.kind = Kind::Call, .text = calls_->call().arguments, .name = calls_->call().name});
        last_kind_.reset();
        has_called_ = true;
    }
    if (step == Step::Failed) {
        calls_.reset();
        if (!has_called_) return fail_call(out);
        state_ = State::Between;
        return read_held(out);
    }
    drop_held();
    if (step == Step::Call) return;
    calls_.reset();
    state_ = State::Between;
}

// A call turned out to be none. The last byte that is held back may begin a header.
void HarmonyReader::fail_call(std::vector<AnswerPiece>& out) {
    const bool is_new_message = may_be_text_;
    become_content();
    is_at_message_start_ = is_new_message;
    emit_held(held_.size() - 1, out);
    read_held(out);
}

// What is held back turned out to be no header and no call: it is content, without an empty line before it.
void HarmonyReader::become_content() {
    state_ = State::Text;
    kind_ = Kind::Content;
    is_at_message_start_ = false;
    may_be_text_ = false;
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
