// Calls in the XML of Qwen3-Coder. It has no escapes, so a value may contain anything; it ends at a closing mark that
// another parameter or the end of the call follows.
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/json_object_scanner.h"

namespace slipstream {

namespace {

using jinja::Kind;
using jinja::Value;
using nlohmann::json;

constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=";
constexpr std::string_view kEndOfValue = "</parameter>", kEndOfCall = "</function>";
// Limits the name of a tool or a parameter, in bytes: longer than any name that a request can offer.
constexpr std::size_t kMaxNameBytes = 256;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// The types that a schema allows. A schema that allows several has a list of names, or alternatives (anyOf, oneOf).
struct AllowedTypes {
    bool string = false, number = false, integer = false, boolean = false, null = false, object = false, array = false;

    void add(std::string_view name) {
        const std::array<std::pair<std::string_view, bool*>, 7> kNames{{{"string", &string},
                                                                        {"number", &number},
                                                                        {"integer", &integer},
                                                                        {"boolean", &boolean},
                                                                        {"null", &null},
                                                                        {"object", &object},
                                                                        {"array", &array}}};
        for (const auto& [known, flag] : kNames)
            if (name == known) *flag = true;
    }
    [[nodiscard]] bool allow(const json& value) const {
        return (value.is_null() && null) || (value.is_boolean() && boolean) || (value.is_object() && object) ||
               (value.is_array() && array) || (value.is_number_integer() && (integer || number)) ||
               (value.is_number_float() && number);
    }
};

void add_types(const Value& schema, AllowedTypes& types, int depth) {
    // Limits alternatives within alternatives, in levels; schemas of functions have one or two.
    constexpr int kMaxAlternatives = 4;
    if (!schema.is(Kind::Dict) || depth == kMaxAlternatives) return;
    if (const Value* type = schema.dict().find("type")) {
        if (type->is_text()) types.add(type->view());
        if (type->is(Kind::List))
            for (const Value& one : type->items())
                if (one.is_text()) types.add(one.view());
    }
    for (const std::string_view key : {"anyOf", "oneOf"})
        if (const Value* alternatives = schema.dict().find(key);
            alternatives != nullptr && alternatives->is(Kind::List))
            for (const Value& one : alternatives->items()) add_types(one, types, depth + 1);
}

AllowedTypes types_of(const OfferedTool* tool, std::string_view parameter) {
    AllowedTypes types;
    if (tool == nullptr || !tool->parameters.is(Kind::Dict)) return types;
    const Value* properties = tool->parameters.dict().find("properties");
    if (properties == nullptr || !properties->is(Kind::Dict)) return types;
    if (const Value* schema = properties->dict().find(parameter)) add_types(*schema, types, 0);
    return types;
}

// Returns `value`, the text between a parameter's tags, as JSON. `types` are the types that the tool's schema allows
// for the parameter. If null is allowed, the text "null" becomes null. Otherwise the text becomes a string if strings
// are allowed, or if it is not JSON of an allowed type.
std::string to_json(const std::string& value, const AllowedTypes& types) {
    if (value == "null" && types.null) return "null";
    if (types.string) return to_json_string(value);
    if (types.boolean && (value == "True" || value == "False")) return value == "True" ? "true" : "false";
    // The scanner bounds the depth and refuses a NUL, at which the parser would stop.
    if (!is_json_object("{\"value\":" + value + "}")) return to_json_string(value);
    const json parsed = json::parse(value, nullptr, false);
    return types.allow(parsed) ? value : to_json_string(value);
}

class XmlCallReader final : public CallReader {
public:
    explicit XmlCallReader(const OfferedTools& tools) : tools_(tools) {}

    Step push(char c) override {
        switch (state_) {
            case State::BeforeCall:
                return match(c, {kFunction}) ? Step::More : Step::Failed;
            case State::Name:
                return push_name(c, call_.name, State::AfterName);
            case State::AfterName:
                return push_between(c);
            case State::Key:
                return push_name(c, key_, State::InValue);
            case State::InValue:
                value_ += c;
                if (c == '>' && value_.ends_with(kEndOfValue)) state_ = State::AfterValue;
                return Step::More;
            case State::AfterValue:
                return push_between(c);
        }
        return Step::Failed;
    }

private:
    enum class State : std::uint8_t { BeforeCall, Name, AfterName, Key, InValue, AfterValue };

    // Adds the byte `c` to held_, which is white space and then the beginning of one of `marks`, and returns whether
    // that is still so. A mark that is now complete is passed to on_mark(), which empties held_.
    bool match(char c, std::initializer_list<std::string_view> marks) {
        held_ += c;
        if (n_space_ + 1 == held_.size() && is_space(c)) {
            ++n_space_;
            return true;
        }
        const std::string_view begun = std::string_view(held_).substr(n_space_);
        for (const std::string_view mark : marks) {
            if (!mark.starts_with(begun)) continue;
            if (begun.size() == mark.size()) on_mark(mark);
            return true;
        }
        return false;
    }
    void on_mark(std::string_view mark) {
        if (state_ == State::AfterValue) end_value();
        held_.clear();
        n_space_ = 0;
        key_.clear();
        state_ = mark == kFunction ? State::Name : State::Key;
        is_over_ = mark == kEndOfCall;
    }

    Step push_name(char c, std::string& name, State next) {
        if (c == '>') {
            if (name.empty()) return Step::Failed;
            state_ = next;
            return Step::More;
        }
        if (is_space(c) || c == '<' || name.size() == kMaxNameBytes) return Step::Failed;
        name += c;
        return Step::More;
    }

    Step push_between(char c) {
        if (match(c, {kParameter, kEndOfCall})) {
            if (!is_over_) return Step::More;
            call_.arguments = "{" + arguments_ + "}";
            return Step::LastCall;
        }
        if (state_ == State::AfterName) return Step::Failed;
        value_ += held_;  // the closing mark was a part of the value
        held_.clear();
        n_space_ = 0;
        state_ = State::InValue;
        return Step::More;
    }

    void end_value() {
        value_.resize(value_.size() - kEndOfValue.size());
        if (value_.starts_with('\n')) value_.erase(0, 1);
        if (value_.ends_with('\n')) value_.pop_back();
        if (!arguments_.empty()) arguments_ += ", ";
        arguments_ += to_json_string(key_) + ": " + to_json(value_, types_of(find_tool(tools_, call_.name), key_));
        value_.clear();
    }

    const OfferedTools& tools_;
    State state_ = State::BeforeCall;
    std::string held_;         // white space, and the beginning of a mark
    std::size_t n_space_ = 0;  // leading white space of held_, bytes
    bool is_over_ = false;
    std::string key_, value_;
    std::string arguments_;  // members of the JSON object of arguments, without its braces
};

}  // namespace

std::unique_ptr<CallReader> make_xml_call_reader(const OfferedTools& tools) {
    return std::make_unique<XmlCallReader>(tools);
}

}  // namespace slipstream
