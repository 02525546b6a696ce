// Calls in the XML of Qwen3-Coder, and in that of Muse Glimmer, which writes them in blocks and keeps the white space
// of values. XML of both has no escapes, so a value may contain anything; it ends at a closing mark that another
// parameter or the end of the call follows.
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/json_object_scanner.h"
#include "runtime/text/json_parser.h"

namespace slipstream {

namespace {

using jinja::Kind;
using jinja::Value;
using nlohmann::json;

// The marks of a notation. The name of a tool or a parameter follows `call` or `parameter`, up to `end_of_name`.
struct XmlMarks {
    std::string_view call, parameter, end_of_name, end_of_value, end_of_call;
    std::string_view block, end_of_block;  // around calls; models may leave them out. Empty: calls have no block
    bool trims_values;                     // a newline at each end of a value belongs to the notation

    [[nodiscard]] bool has_blocks() const { return !block.empty(); }
};
constexpr XmlMarks kQwen{.call = "<function=",
                         .parameter = "<parameter=",
                         .end_of_name = ">",
                         .end_of_value = "</parameter>",
                         .end_of_call = "</function>",
                         .block = {},
                         .end_of_block = {},
                         .trims_values = true};
constexpr XmlMarks kAtem{.call = "<atem:invoke name=\"",
                         .parameter = "<atem:parameter name=\"",
                         .end_of_name = "\">",
                         .end_of_value = "</atem:parameter>",
                         .end_of_call = "</atem:invoke>",
                         .block = "<atem:function_calls>",
                         .end_of_block = "</atem:function_calls>",
                         .trims_values = false};
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
    const json parsed = parse_json_value(value);
    return types.allow(parsed) ? value : to_json_string(value);
}

class XmlCallReader final : public CallReader {
public:
    XmlCallReader(const XmlMarks& marks, const OfferedTools& tools) : marks_(marks), tools_(tools) {}

    Step push(char c) override {
        switch (state_) {
            case State::BeforeBlock:
                return match(c, {marks_.block, marks_.call}) ? Step::More : Step::Failed;
            case State::BeforeCall:
                return match(c, {marks_.call}) ? Step::More : Step::Failed;
            case State::Name:
                return push_name(c, call_.name, State::AfterName);
            case State::AfterName:
                return push_between(c);
            case State::Key:
                return push_name(c, key_, State::InValue);
            case State::InValue:
                value_ += c;
                if (c == '>' && value_.ends_with(marks_.end_of_value)) state_ = State::AfterValue;
                return Step::More;
            case State::AfterValue:
                return push_between(c);
            case State::AfterCall:
                if (!match(c, {marks_.call, marks_.end_of_block})) return Step::Failed;
                return state_ == State::AfterBlock ? Step::End : Step::More;
            case State::AfterBlock:
                break;
        }
        return Step::Failed;
    }
    [[nodiscard]] bool is_between_calls() const override { return state_ == State::AfterCall; }

private:
    enum class State : std::uint8_t {
        BeforeBlock,  // before a block or a call
        BeforeCall,
        Name,
        AfterName,
        Key,
        InValue,
        AfterValue,
        AfterCall,  // in a block or after a call without one
        AfterBlock,
    };

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
        if (mark == marks_.block) {
            state_ = State::BeforeCall;
        } else if (mark == marks_.end_of_block) {
            state_ = State::AfterBlock;
        } else if (mark == marks_.call) {
            state_ = State::Name;
            call_ = {};
            arguments_.clear();
        } else {
            state_ = mark == marks_.parameter ? State::Key : State::AfterCall;
        }
    }

    Step push_name(char c, std::string& name, State next) {
        name += c;
        if (name.ends_with(marks_.end_of_name)) {
            name.resize(name.size() - marks_.end_of_name.size());
            if (name.empty()) return Step::Failed;
            state_ = next;
            return Step::More;
        }
        // A quotation mark is a part of a name only if names are not quoted.
        const bool is_after_quote = marks_.end_of_name.front() == '"' && name.find('"') < name.size() - 1;
        if (is_space(c) || c == '<' || is_after_quote || name.size() > kMaxNameBytes) return Step::Failed;
        return Step::More;
    }

    Step push_between(char c) {
        if (match(c, {marks_.parameter, marks_.end_of_call})) {
            if (state_ != State::AfterCall) return Step::More;
            call_.arguments = "{" + arguments_ + "}";
            return marks_.has_blocks() ? Step::Call : Step::LastCall;
        }
        if (state_ == State::AfterName) return Step::Failed;
        value_ += held_;  // the closing mark was a part of the value
        held_.clear();
        n_space_ = 0;
        state_ = State::InValue;
        return Step::More;
    }

    void end_value() {
        value_.resize(value_.size() - marks_.end_of_value.size());
        if (marks_.trims_values) {
            if (value_.starts_with('\n')) value_.erase(0, 1);
            if (value_.ends_with('\n')) value_.pop_back();
        }
        if (!arguments_.empty()) arguments_ += ", ";
        arguments_ += to_json_string(key_) + ": " + to_json(value_, types_of(find_tool(tools_, call_.name), key_));
        value_.clear();
    }

    const XmlMarks& marks_;
    const OfferedTools& tools_;
    State state_ = marks_.has_blocks() ? State::BeforeBlock : State::BeforeCall;
    std::string held_;         // white space, and the beginning of a mark
    std::size_t n_space_ = 0;  // leading white space of held_, bytes
    std::string key_, value_;
    std::string arguments_;  // members of the JSON object of arguments, without its braces
};

}  // namespace

std::unique_ptr<CallReader> make_xml_call_reader(const OfferedTools& tools) {
    return std::make_unique<XmlCallReader>(kQwen, tools);
}

std::unique_ptr<CallReader> make_atem_call_reader(const OfferedTools& tools) {
    return std::make_unique<XmlCallReader>(kAtem, tools);
}

}  // namespace slipstream
