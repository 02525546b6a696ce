// Calls of Gemma 4: call:NAME{KEY:VALUE,...}. A string is between two <|"|> and has no escapes; keys are bare or
// written like strings; objects, lists, numbers, true, false and null are as in JSON, and so are strings and keys in
// quotation marks, which a model may write instead. Any other bare value that does not begin with "<" is a string.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/json_object_scanner.h"

namespace slipstream {

namespace {

constexpr std::string_view kQuote = "<|\"|>";
constexpr std::string_view kBegin = "call:";
// Limits the name of a tool or a bare key, in bytes: longer than any name that a request can offer.
constexpr std::size_t kMaxNameBytes = 256;
// Limits how deeply the objects and lists of a call may be nested, in levels, so that parsing them cannot exhaust the
// stack.
constexpr std::size_t kMaxDepth = 64;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_structure(char c) {
    return std::string_view("{}[],:").find(c) != std::string_view::npos;
}

std::string without_space_at_end(std::string text) {
    while (!text.empty() && is_space(text.back())) text.pop_back();
    return text;
}

// Returns `text`, a value without quotation marks that must not be empty, as JSON: unchanged if it is a JSON number,
// true, false or null, otherwise as a JSON string.
std::string json_of_bare(std::string text) {
    text = without_space_at_end(std::move(text));
    const bool may_be_json = std::string_view("-0123456789tfn").find(text.front()) != std::string_view::npos;
    return may_be_json && is_json_object("{\"value\":" + text + "}") ? text : to_json_string(text);
}

class GemmaCallReader final : public CallReader {
public:
    Step push(char c) override {
        switch (state_) {
            case State::Begin:
                if (text_.empty() && is_space(c)) return Step::More;
                text_ += c;
                if (!kBegin.starts_with(text_)) return Step::Failed;
                if (text_ == kBegin) state_ = State::Name;
                return Step::More;
            case State::Name:
                if (c == '{' && !call_.name.empty()) return open(c);
                if (is_space(c) || c == '<' || c == '>' || c == '"' || is_structure(c)) return Step::Failed;
                if (call_.name.size() == kMaxNameBytes) return Step::Failed;
                call_.name += c;
                return Step::More;
            case State::KeyOrEnd:
            case State::Key:
                return push_before_key(c);
            case State::InKey:
                if (c == ':') return end_key(to_json_string(without_space_at_end(text_)));
                if (is_structure(c) || text_.size() == kMaxNameBytes) return Step::Failed;
                text_ += c;
                return Step::More;
            case State::Colon:
                if (is_space(c)) return Step::More;
                return c == ':' ? end_key({}) : Step::Failed;
            case State::ValueOrEnd:
            case State::Value:
                return push_before_value(c);
            case State::InBare:
                if (c != ',' && c != '}' && c != ']') {
                    text_ += c;
                    return Step::More;
                }
                json_ += json_of_bare(text_);
                return push_after_value(c);
            case State::OpensQuote:
                text_ += c;
                if (!kQuote.starts_with(text_)) return Step::Failed;
                if (text_ != kQuote) return Step::More;
                text_.clear();
                state_ = State::InQuotes;
                return Step::More;
            case State::InQuotes:
                text_ += c;
                if (c != '>' || !text_.ends_with(kQuote)) return Step::More;
                text_.resize(text_.size() - kQuote.size());
                json_ += to_json_string(text_);
                state_ = is_key_ ? State::Colon : State::AfterValue;
                return Step::More;
            case State::InJsonString:
                text_ += c;
                if (c == '"' && !is_escaped_) {
                    json_ += text_;  // not checked here: the whole object is checked at its end
                    state_ = is_key_ ? State::Colon : State::AfterValue;
                }
                is_escaped_ = c == '\\' && !is_escaped_;
                return Step::More;
            case State::AfterValue:
                return push_after_value(c);
        }
        return Step::Failed;
    }

private:
    enum class State : std::uint8_t {
        Begin,
        Name,
        KeyOrEnd,
        Key,
        InKey,
        Colon,
        ValueOrEnd,
        Value,
        InBare,
        OpensQuote,
        InQuotes,
        InJsonString,
        AfterValue
    };

    Step open(char c) {
        if (open_.size() == kMaxDepth) return Step::Failed;
        open_.push_back(c);
        json_ += c;
        state_ = c == '{' ? State::KeyOrEnd : State::ValueOrEnd;
        return Step::More;
    }
    Step close(char c) {
        if ((open_.back() == '{') != (c == '}')) return Step::Failed;
        open_.pop_back();
        json_ += c;
        state_ = State::AfterValue;
        if (!open_.empty()) return Step::More;
        if (!is_json_object(json_)) return Step::Failed;
        call_.arguments = json_;
        return Step::LastCall;
    }
    Step end_key(const std::string& key) {
        json_ += key;
        json_ += ':';
        state_ = State::Value;
        return Step::More;
    }
    Step push_before_key(char c) {
        if (is_space(c)) return Step::More;
        if (c == '}' && state_ == State::KeyOrEnd) return close(c);
        if (is_structure(c)) return Step::Failed;
        return begin_text(c, true);
    }
    Step push_before_value(char c) {
        if (is_space(c)) return Step::More;
        if (c == '{' || c == '[') return open(c);
        if (c == ']' && state_ == State::ValueOrEnd) return close(c);
        if (is_structure(c)) return Step::Failed;
        return begin_text(c, false);
    }
    Step begin_text(char c, bool is_key) {
        text_ = c;
        is_key_ = is_key;
        is_escaped_ = false;
        state_ = c == kQuote.front() ? State::OpensQuote
                 : c == '"'          ? State::InJsonString
                 : is_key            ? State::InKey
                                     : State::InBare;
        return Step::More;
    }
    Step push_after_value(char c) {
        state_ = State::AfterValue;
        if (is_space(c)) return Step::More;
        if (c == '}' || c == ']') return close(c);
        if (c != ',') return Step::Failed;
        json_ += c;
        state_ = open_.back() == '{' ? State::Key : State::Value;
        return Step::More;
    }

    State state_ = State::Begin;
    std::string text_;  // the bytes so far of what is read now: "call:", a key, a value, or a mark
    bool is_key_ = false;
    bool is_escaped_ = false;  // in a JSON string, after a backslash
    std::string json_;
    std::vector<char> open_;  // '{' or '[' of each open container
};

}  // namespace

std::unique_ptr<CallReader> make_gemma_call_reader() {
    return std::make_unique<GemmaCallReader>();
}

}  // namespace slipstream
