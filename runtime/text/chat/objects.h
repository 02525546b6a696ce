// Values with a behaviour of their own: what can be called, iterated over once, or changed. Object answers for Python's
// getattr(), obj[key], call, len(), bool() and repr(); what it does not answer, it does not have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;
class TextBuilder;

/// Of a call: f(positional..., name=value...).
struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

class Object : public Cell {
public:
    [[nodiscard]] virtual std::string_view type_name() const = 0;
    virtual void write_repr(TextBuilder& out, int level) const;
    [[nodiscard]] virtual bool truth() const { return true; }
    [[nodiscard]] virtual bool is_callable() const { return false; }
    [[nodiscard]] virtual bool is_iterable() const { return false; }
    [[nodiscard]] virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name);
    /// obj[key]; nothing where Python raises TypeError or LookupError.
    [[nodiscard]] virtual std::optional<Value> element(Runtime& runtime, const Value& key);
    [[nodiscard]] virtual Value call(Runtime& runtime, Arguments& arguments);
    [[nodiscard]] virtual std::optional<std::int64_t> length(Runtime& runtime);
    [[nodiscard]] virtual bool equals(const Object& other) const { return this == &other; }
    [[nodiscard]] virtual std::size_t hash() const { return std::hash<const void*>()(this); }
    /// Of what it holds for good; chains of iterators over iterators are limited as nested lists are.
    [[nodiscard]] virtual int depth() const { return 0; }
    /// Lets go of values that came to it after it was made, so that circles fall apart (Runtime::make_mutable).
    virtual void release() {}
};

/// Something that yields values once. Lazy, as Python's generators are: what is not asked for is not computed.
class Iterator : public Object {
public:
    /// The next value, or nothing at the end (and from then on).
    [[nodiscard]] virtual std::optional<Value> next(Runtime& runtime) = 0;
    [[nodiscard]] std::string_view type_name() const override { return "generator"; }
    [[nodiscard]] bool is_iterable() const override { return true; }
};

/// The items of a list or tuple, or the characters of a text, or the keys of a dict; backwards if asked to.
class ItemIterator final : public Iterator {
public:
    enum class Direction : std::uint8_t { Forwards, Backwards };
    explicit ItemIterator(Value container, Direction direction = Direction::Forwards);

    [[nodiscard]] std::optional<Value> next(Runtime& runtime) override;
    [[nodiscard]] std::string_view type_name() const override { return "iterator"; }
    [[nodiscard]] int depth() const override { return container_.depth() + 1; }

private:
    [[nodiscard]] Value item(Runtime& runtime, std::size_t index) const;

    Value container_;  // list, tuple, text, dict, or an object that is a Range or a DictView
    Direction direction_;
    std::int64_t n_items_ = 0;
    std::int64_t n_done_ = 0;
    std::size_t byte_ = 0;  // of a text: where the next character begins
};

/// An integer out of JSON that leaves 64 bits (the largest of an unsigned type, in a tool's schema): it can be printed
/// and compared with its like, and nothing is computed with it.
class LongInteger final : public Object {
public:
    /// `digits` as JSON spells an integer.
    explicit LongInteger(std::string digits) : digits_(std::move(digits)) {}
    [[nodiscard]] std::string_view type_name() const override { return "int beyond 64 bits"; }
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] bool equals(const Object& other) const override;
    [[nodiscard]] std::size_t hash() const override { return std::hash<std::string>()(digits_); }
    [[nodiscard]] const std::string& digits() const { return digits_; }
    /// Null where `value` is none.
    [[nodiscard]] static const LongInteger* of(const Value& value);

private:
    std::string digits_;
};

/// range(start, stop, step).
class Range final : public Object {
public:
    Range(std::int64_t start, std::int64_t stop, std::int64_t step);

    [[nodiscard]] std::string_view type_name() const override { return "range"; }
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] bool truth() const override { return length_ != 0; }
    [[nodiscard]] bool is_iterable() const override { return true; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    [[nodiscard]] std::optional<Value> element(Runtime& runtime, const Value& key) override;
    [[nodiscard]] std::optional<std::int64_t> length(Runtime& /*runtime*/) override { return length_; }
    [[nodiscard]] bool equals(const Object& other) const override;
    [[nodiscard]] std::size_t hash() const override;
    [[nodiscard]] std::int64_t at(std::int64_t index) const {
        // Unsigned: the product may pass 2^63 where the sum does not.
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(start_) +
                                         static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(step_));
    }
    [[nodiscard]] std::int64_t size() const { return length_; }
    [[nodiscard]] bool contains(std::int64_t number) const;
    [[nodiscard]] std::int64_t step() const { return step_; }

private:
    static constexpr std::uint64_t kMaxItems = 100000;  // as the sandbox of Jinja has it

    std::int64_t start_, stop_, step_;
    std::int64_t length_ = 0;
};

/// dict.keys(), .values(), .items(): sized, iterable again and again.
class DictView final : public Object {
public:
    enum class Part : std::uint8_t { Keys, Values, Items };
    DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) {}

    [[nodiscard]] std::string_view type_name() const override;
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] bool truth() const override { return dict_.dict().size() != 0; }
    [[nodiscard]] bool is_iterable() const override { return true; }
    [[nodiscard]] std::optional<std::int64_t> length(Runtime& runtime) override;
    [[nodiscard]] int depth() const override { return dict_.depth() + 1; }
    [[nodiscard]] Value item(std::size_t index) const;
    [[nodiscard]] const Value& dict() const { return dict_; }
    [[nodiscard]] Part part() const { return part_; }

private:
    Value dict_;
    Part part_;
};

/// namespace(...): the one thing a template can write to.
class Namespace final : public Object {
public:
    [[nodiscard]] std::string_view type_name() const override { return "namespace"; }
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    void release() override { attributes_ = Dict(); }
    /// Throws TemplateError for names that begin with an underscore.
    void set(std::string_view name, Value value);

private:
    Dict attributes_;
};

/// A function of ours, or a method bound to its value.
class Function final : public Object {
public:
    using Body = Value (*)(Runtime&, const Value& self, Arguments&);
    Function(std::string_view name, Body body, Value self = Value())
        : name_(name), body_(body), self_(std::move(self)) {}

    [[nodiscard]] std::string_view type_name() const override { return "builtin_function_or_method"; }
    void write_repr(TextBuilder& out, int level) const override;
    [[nodiscard]] bool is_callable() const override { return true; }
    [[nodiscard]] int depth() const override { return self_.depth() + 1; }
    [[nodiscard]] Value call(Runtime& runtime, Arguments& arguments) override {
        return body_(runtime, self_, arguments);
    }

private:
    std::string_view name_;  // of a literal
    Body body_;
    Value self_;
};

/// iter(value): an iterator stays what it is. Throws TemplateError for what cannot be iterated over.
[[nodiscard]] std::shared_ptr<Iterator> iterate(Runtime& runtime, const Value& value);
[[nodiscard]] bool is_iterable(const Value& value);
/// list(value).
[[nodiscard]] std::vector<Value> to_items(Runtime& runtime, const Value& value);
/// len(value), or nothing.
[[nodiscard]] std::optional<std::int64_t> length_of(Runtime& runtime, const Value& value);

}  // namespace slipstream::jinja
