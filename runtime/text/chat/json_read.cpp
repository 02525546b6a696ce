// JSON into values, without recursion: the parser reports what it meets, the open containers stand on a stack.
#include <nlohmann/json.hpp>

#include "kernels/base/check.h"
#include "runtime/text/chat/json_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kMaxDepth = 100;

class Reader {
public:
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    Reader(std::string_view what, Runtime* runtime, Origin origin) : what_(what), runtime_(runtime), origin_(origin) {}

    bool null() { return add(Value::none()); }
    bool boolean(bool value) { return add(Value(value)); }
    bool number_integer(number_integer_t value) { return add(Value(value)); }
    bool number_unsigned(number_unsigned_t value) {
        if (value > std::uint64_t{INT64_MAX}) return long_integer(fmt::format("{}", value));
        return add(Value(static_cast<std::int64_t>(value)));
    }
    bool number_float(number_float_t value, const string_t& text) {
        // Digits alone: an integer that nlohmann could not hold.
        if (text.find_first_of(".eE") == string_t::npos) return long_integer(text);
        return add(Value(value));
    }
    bool string(string_t& value) { return add(text(value)); }
    bool binary(binary_t& /*value*/) { CHECK(false, "JSON text holds no binary values"); }

    bool start_object(std::size_t /*size*/) { return open(Kind::Dict); }
    bool start_array(std::size_t /*size*/) { return open(Kind::List); }
    bool key(string_t& name) {
        open_.back().key = text(name);
        return true;
    }
    bool end_object() {
        Dict items = std::move(open_.back().dict);
        Value dict = runtime_ != nullptr ? runtime_->dict(std::move(items)) : Value::dict(std::move(items));
        open_.pop_back();
        return add(std::move(dict));
    }
    bool end_array() {
        std::vector<Value> items = std::move(open_.back().items);
        Value list = runtime_ != nullptr ? runtime_->list(std::move(items)) : Value::list(std::move(items));
        open_.pop_back();
        return add(std::move(list));
    }
    bool parse_error(std::size_t at, const std::string& /*token*/, const nlohmann::json::exception& /*error*/) {
        fail("{}: not JSON at byte {}", what_, at);
    }

    [[nodiscard]] Value take() { return std::move(result_); }

private:
    struct Open {
        Kind kind;
        std::vector<Value> items;
        Dict dict;
        Value key;
    };

    [[nodiscard]] Value text(string_t& value) {
        MarkedText marked{std::move(value), {}};
        if (origin_ == Origin::Said && !marked.bytes.empty()) marked.said.push_back({0, marked.bytes.size()});
        return runtime_ != nullptr ? runtime_->text(std::move(marked)) : Value(std::move(marked));
    }

    bool long_integer(std::string digits) { return add(Value::long_integer(std::move(digits))); }

    bool open(Kind kind) {
        if (open_.size() == kMaxDepth) fail("{}: JSON nested deeper than {}", what_, kMaxDepth);
        open_.push_back({kind, {}, {}, {}});
        return true;
    }

    bool add(Value value) {
        if (runtime_ != nullptr) runtime_->spend(1);
        if (open_.empty()) {
            result_ = std::move(value);
        } else if (open_.back().kind == Kind::List) {
            if (runtime_ != nullptr) runtime_->check_items(open_.back().items.size());
            open_.back().items.push_back(std::move(value));
        } else {
            open_.back().dict.set(std::move(open_.back().key), std::move(value));
        }
        return true;
    }

    std::string_view what_;
    Runtime* runtime_;
    Origin origin_;
    std::vector<Open> open_;
    Value result_;
};

}  // namespace

Value parse_json(std::string_view text, std::string_view what, Runtime* runtime, Origin origin) {
    Reader reader(what, runtime, origin);
    nlohmann::json::sax_parse(text, &reader);
    return reader.take();
}

}  // namespace slipstream::jinja
