#include "runtime/text/answer/json_object_scanner.h"

#include <nlohmann/json.hpp>

#include "runtime/text/json_parser.h"

namespace slipstream {

namespace {

using nlohmann::json;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool can_be_in_scalar(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E';
}

}  // namespace

JsonObjectScanner::Step JsonObjectScanner::push(char c) {
    const Step step = expect_ == Expect::InString ? push_in_string(c) : this->step(c);
    if (step != Step::Done) return step;
    return is_valid() ? Step::Done : Step::Failed;
}

JsonObjectScanner::Step JsonObjectScanner::step(char c) {
    if (expect_ == Expect::InScalar) {
        if (can_be_in_scalar(c)) {
            text_ += c;
            return Step::More;
        }
        end_value();
        expect_ = Expect::CommaOrEnd;
    }
    if (is_space(c)) {
        if (!text_.empty()) text_ += c;
        return text_.empty() ? Step::Failed : Step::More;
    }
    switch (expect_) {
        case Expect::ValueOrEnd:
            if (c == ']') return close(c);
            [[fallthrough]];
        case Expect::Value:
            return begin_value(c);
        case Expect::KeyOrEnd:
            if (c == '}') return close(c);
            [[fallthrough]];
        case Expect::Key:
            if (c != '"') return Step::Failed;
            string_is_key_ = true;
            string_begin_ = text_.size();
            text_ += c;
            expect_ = Expect::InString;
            return Step::More;
        case Expect::Colon:
            if (c != ':') return Step::Failed;
            text_ += c;
            expect_ = Expect::Value;
            return Step::More;
        case Expect::CommaOrEnd:
            if (c == '}' || c == ']') return close(c);
            if (c != ',') return Step::Failed;
            text_ += c;
            expect_ = open_.back() == '{' ? Expect::Key : Expect::Value;
            return Step::More;
        default:
            return Step::Failed;
    }
}

JsonObjectScanner::Step JsonObjectScanner::push_in_string(char c) {
    if (is_escaped_) {
        is_escaped_ = false;
        text_ += c;
        return Step::More;
    }
    if (c == '\n' || c == '\t' || c == '\r') {
        text_ += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
        return Step::More;
    }
    if (static_cast<unsigned char>(c) < 0x20) return Step::Failed;
    text_ += c;
    if (c == '\\') is_escaped_ = true;
    if (c != '"') return Step::More;
    if (!string_is_key_) {
        end_value();
        expect_ = Expect::CommaOrEnd;
        return Step::More;
    }
    if (open_.size() == 1)
        members_.push_back({.key = json_string_text(std::string_view(text_).substr(string_begin_)).value_or("")});
    expect_ = Expect::Colon;
    return Step::More;
}

JsonObjectScanner::Step JsonObjectScanner::begin_value(char c) {
    if (open_.empty() && c != '{') return Step::Failed;
    if (open_.size() == 1) members_.back().begin = text_.size();
    if (c == '{' || c == '[') {
        if (open_.size() == kMaxDepth) return Step::Failed;
        open_.push_back(c);
        expect_ = c == '{' ? Expect::KeyOrEnd : Expect::ValueOrEnd;
    } else if (c == '"') {
        string_is_key_ = false;
        expect_ = Expect::InString;
    } else if (c == 't' || c == 'f' || c == 'n' || c == '-' || (c >= '0' && c <= '9')) {
        expect_ = Expect::InScalar;
    } else {
        return Step::Failed;
    }
    text_ += c;
    return Step::More;
}

JsonObjectScanner::Step JsonObjectScanner::close(char c) {
    if (c != (open_.back() == '{' ? '}' : ']')) return Step::Failed;
    text_ += c;
    open_.pop_back();
    if (open_.empty()) return Step::Done;
    end_value();
    expect_ = Expect::CommaOrEnd;
    return Step::More;
}

void JsonObjectScanner::end_value() {
    if (open_.size() == 1) members_.back().end = text_.size();
}

bool JsonObjectScanner::is_valid() const {
    // The parser looks at numbers, words, escapes and UTF-8, step() does not. It makes a value that is not used, so
    // that it need not be instantiated a second time.
    return !parse_json_value(text_).is_discarded();
}

std::optional<std::string_view> JsonObjectScanner::member(std::string_view key) const {
    for (auto member = members_.rbegin(); member != members_.rend(); ++member)
        if (member->key == key) return std::string_view(text_).substr(member->begin, member->end - member->begin);
    return std::nullopt;
}

std::optional<std::string> json_string_text(std::string_view text) {
    if (!text.starts_with('"')) return std::nullopt;
    const json value = parse_json_value(text);
    if (!value.is_string()) return std::nullopt;
    return value.get<std::string>();
}

bool is_json_object(std::string_view text) {
    JsonObjectScanner scanner;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const JsonObjectScanner::Step step = scanner.push(text[i]);
        if (step == JsonObjectScanner::Step::More) continue;
        return step == JsonObjectScanner::Step::Done && i + 1 == text.size();
    }
    return false;
}

std::string to_json_string(std::string_view text) {
    return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace slipstream
