// Calls as JSON: one object, or a list of objects. Also the named form of Mistral, whose arguments are an object.
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/json_object_scanner.h"

namespace slipstream {

namespace {

using ObjectStep = JsonObjectScanner::Step;

// Limits the name of a tool, in bytes: longer than any name that a request can offer.
constexpr std::size_t kMaxNameBytes = 256;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Returns the arguments of a call: an object as it is spelt; an object that is spelt as a string, as in the protocol
// of requests, is taken out of it; {} if there are none. nullopt if they are anything else.
std::optional<std::string> arguments_of(const JsonObjectScanner& object) {
    std::optional<std::string_view> spelt = object.member("arguments");
    if (!spelt) spelt = object.member("parameters");
    if (!spelt || *spelt == "null") return "{}";
    if (spelt->starts_with('{')) return std::string(*spelt);
    std::optional<std::string> text = json_string_text(*spelt);
    if (text && is_json_object(*text)) return text;
    return std::nullopt;
}

// Returns the call that an object describes, or nullopt if it describes none.
std::optional<ReadCall> call_of(const JsonObjectScanner& object) {
    std::optional<std::string_view> spelt = object.member("name");
    if (!spelt) spelt = object.member("function");
    std::optional<std::string> name = spelt ? json_string_text(*spelt) : std::nullopt;
    if (!name || name->empty() || name->size() > kMaxNameBytes) return std::nullopt;
    std::optional<std::string> arguments = arguments_of(object);
    if (!arguments) return std::nullopt;
    const bool has_arguments = object.member("arguments") || object.member("parameters");
    return ReadCall{.name = std::move(*name), .arguments = std::move(*arguments), .has_arguments = has_arguments};
}

class JsonCallReader final : public CallReader {
public:
    Step push(char c) override {
        if (object_) return push_object(c);
        if (is_space(c)) return Step::More;
        switch (expect_) {
            case Expect::ListOrObject:
                if (c == '[') {
                    is_list_ = true;
                    expect_ = Expect::Object;
                    return Step::More;
                }
                [[fallthrough]];
            case Expect::Object:
                if (c != '{') return Step::Failed;
                object_.emplace();
                return push_object(c);
            case Expect::CommaOrEnd:
                if (c == ']') return Step::End;
                if (c != ',') return Step::Failed;
                expect_ = Expect::Object;
                return Step::More;
        }
        return Step::Failed;
    }

private:
    enum class Expect : std::uint8_t { ListOrObject, Object, CommaOrEnd };

    Step push_object(char c) {
        const ObjectStep step = object_->push(c);
        if (step == ObjectStep::More) return Step::More;
        std::optional<ReadCall> call = step == ObjectStep::Done ? call_of(*object_) : std::nullopt;
        if (!call) return Step::Failed;
        call_ = std::move(*call);
        object_.reset();
        expect_ = Expect::CommaOrEnd;
        return is_list_ ? Step::Call : Step::LastCall;
    }

    Expect expect_ = Expect::ListOrObject;
    bool is_list_ = false;
    std::optional<JsonObjectScanner> object_;  // the object that is read; nullopt between objects
};

// [TOOL_CALLS] is followed by a list, or by NAME[CALL_ID]ID[ARGS]{...} with optional parts.
class MistralCallReader final : public CallReader {
public:
    Step push(char c) override {
        if (list_) return push_list(c);
        if (object_) return push_arguments(c);
        if (name_.empty() && is_space(c)) return Step::More;
        if (name_.empty() && c == '[') {
            list_ = make_json_call_reader();
            return push_list(c);
        }
        if (c == '{') return begin_arguments(c);
        if (name_.size() == kMaxNameBytes || is_space(c)) return Step::Failed;
        name_ += c;
        return Step::More;
    }

private:
    Step push_list(char c) {
        const Step step = list_->push(c);
        if (step == Step::Call) call_ = list_->call();
        return step;
    }
    // Called at `c`, the "{" that begins the arguments. Divides the text before it into the name of the tool and the
    // marks after the name. The id of the call is dropped: the server makes ids of its own.
    Step begin_arguments(char c) {
        constexpr std::string_view kArguments = "[ARGS]", kId = "[CALL_ID]";
        std::string_view name = name_;
        if (name.ends_with(kArguments)) name.remove_suffix(kArguments.size());
        name = name.substr(0, name.find(kId));
        if (name.empty() || name.find_first_of("[]{}\"<>") != std::string_view::npos) return Step::Failed;
        call_.name = name;
        object_.emplace();
        return push_arguments(c);
    }
    Step push_arguments(char c) {
        const ObjectStep step = object_->push(c);
        if (step != ObjectStep::Done) return step == ObjectStep::More ? Step::More : Step::Failed;
        call_.arguments = object_->text();
        return Step::LastCall;
    }

    std::unique_ptr<CallReader> list_;         // reads a list; null until one begins
    std::string name_;                         // the name of the tool and the marks after it
    std::optional<JsonObjectScanner> object_;  // reads the arguments; nullopt until they begin
};

}  // namespace

std::unique_ptr<CallReader> make_json_call_reader() {
    return std::make_unique<JsonCallReader>();
}

std::unique_ptr<CallReader> make_mistral_call_reader() {
    return std::make_unique<MistralCallReader>();
}

}  // namespace slipstream
