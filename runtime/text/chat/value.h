// Values of the template language, with Python's meaning: none, bool, int (64 bits), float, str, list, tuple, dict in
// insertion order, what Python makes of ranges, dict views and generators (lists of another kind here), objects, and
// "undefined", which remembers what it is the absence of. A Value is a handle; what it points to never changes once
// made (lists and dicts too: the sandbox forbids it), except inside objects. Every container knows its depth, limited
// so that recursion over it is safe.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/text_builder.h"

namespace slipstream::jinja {

enum class Kind : std::uint8_t {
    Missing,  // a variable that nobody has set; never seen by filters and operators
    Undefined,
    None,
    Bool,
    Int,
    LongInt,  // an integer of JSON beyond 64 bits: shown and compared as it came, never computed with
    Float,
    Text,
    List,  // from here to Generator: sequences
    Tuple,
    Range,
    Keys,
    Values,
    Items,
    Generator,  // of map() and its kind: read once, without a length
    Dict,
    Object
};

/// Nesting of containers stops here.
inline constexpr int kMaxValueDepth = 200;

/// What a Value points to; gives back what it took from an account.
class Cell {
public:
    Cell() = default;
    Cell(Account& account, std::size_t bytes) { charge(account, bytes); }
    Cell(const Cell&) = delete;
    Cell& operator=(const Cell&) = delete;
    virtual ~Cell() {
        if (account_ != nullptr) account_->give_back(bytes_);
    }
    /// Pays for `bytes` as long as this lives; throws TemplateError where the account has no more.
    void charge(Account& account, std::size_t bytes) {
        account.take(bytes);
        account_ = &account;
        bytes_ += bytes;
    }

private:
    Account* account_ = nullptr;
    std::size_t bytes_ = 0;
};

template <typename T>
struct Box final : Cell {
    explicit Box(T made) : content(std::move(made)) {}
    T content;
};

class Dict;
class Object;
class Runtime;
struct Sequence;
struct Text;
struct Undefined;

class Value {
public:
    Value() = default;
    template <std::same_as<bool> T>
    explicit Value(T truth) : kind_(Kind::Bool), scalar_(truth ? 1 : 0) {}
    template <std::integral T>
    requires(!std::same_as<T, bool>) explicit Value(T number)
        : kind_(Kind::Int), scalar_(static_cast<std::int64_t>(number)) {}
    explicit Value(double number) : kind_(Kind::Float), scalar_(std::bit_cast<std::int64_t>(number)) {}
    explicit Value(Text text);
    explicit Value(MarkedText text);
    explicit Value(std::string text) : Value(MarkedText{std::move(text), {}}) {}
    explicit Value(std::string_view text) : Value(std::string(text)) {}
    explicit Value(const char* text) : Value(std::string(text)) {}
    /// A cell of that kind.
    Value(Kind kind, std::shared_ptr<Cell> cell) : kind_(kind), cell_(std::move(cell)) {}

    [[nodiscard]] static Value none() { return {Kind::None, nullptr}; }
    /// Text that somebody said: no control token is made of it.
    [[nodiscard]] static Value said(std::string text);
    [[nodiscard]] static Value undefined(Undefined why);
    /// These throw TemplateError where the nesting exceeds kMaxValueDepth.
    [[nodiscard]] static Value sequence(Kind kind, std::vector<Value> items);
    [[nodiscard]] static Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
    [[nodiscard]] static Value dict(Dict dict);
    [[nodiscard]] static Value dict(std::initializer_list<std::pair<std::string_view, Value>> items);

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
    [[nodiscard]] bool is_missing() const { return kind_ == Kind::Missing; }
    [[nodiscard]] bool is_undefined() const { return kind_ == Kind::Undefined; }
    [[nodiscard]] bool is_none() const { return kind_ == Kind::None; }
    [[nodiscard]] bool is_text() const { return kind_ == Kind::Text; }
    [[nodiscard]] bool is_sequence() const { return kind_ >= Kind::List && kind_ <= Kind::Generator; }
    [[nodiscard]] bool is_list_or_tuple() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }
    [[nodiscard]] bool is_indexable() const { return kind_ >= Kind::List && kind_ <= Kind::Range; }
    [[nodiscard]] bool is_iterable() const { return is_sequence() || is_text() || is(Kind::Dict) || is_undefined(); }
    [[nodiscard]] bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }
    [[nodiscard]] bool is_number() const { return is_integral() || kind_ == Kind::Float; }

    /// Of the matching kinds only.
    [[nodiscard]] bool truth() const { return scalar_ != 0; }
    [[nodiscard]] std::int64_t integer() const { return scalar_; }  // Int or Bool
    [[nodiscard]] double real() const {
        return kind_ == Kind::Float ? std::bit_cast<double>(scalar_) : static_cast<double>(scalar_);
    }
    [[nodiscard]] const Text& text() const { return content<Text>(); }
    [[nodiscard]] std::string_view view() const;  // the bytes of a Text, the digits of a LongInt
    [[nodiscard]] const std::vector<Value>& items() const;
    [[nodiscard]] Sequence& sequence() const { return content<Sequence>(); }
    [[nodiscard]] const Dict& dict() const { return content<Dict>(); }
    [[nodiscard]] const Undefined& undefined() const { return content<Undefined>(); }
    [[nodiscard]] Object& object() const;

    /// Null for scalars.
    [[nodiscard]] const std::shared_ptr<Cell>& cell() const { return cell_; }
    [[nodiscard]] bool is_same_cell(const Value& other) const { return cell_ != nullptr && cell_ == other.cell_; }
    /// How deep containers nest in it; 0 for what is none.
    [[nodiscard]] int depth() const;

private:
    template <typename T>
    [[nodiscard]] T& content() const {
        return static_cast<Box<T>&>(*cell_).content;
    }

    Kind kind_ = Kind::Missing;
    std::int64_t scalar_ = 0;  // or the bits of a double
    std::shared_ptr<Cell> cell_;
};

/// A str: UTF-8, counted in code points (a maximal broken part counts as one).
struct Text {
    [[nodiscard]] std::string_view bytes() const { return marked.bytes; }

    MarkedText marked;
    bool is_safe = false;  // by the filter `safe`: what is added to it with + is escaped for HTML
};

struct Sequence {
    std::vector<Value> items;
    int depth = 1;
    std::string shown;       // of a Range: as Python shows it
    std::size_t n_read = 0;  // of a Generator
    bool is_key = false;     // of a Tuple: whether it can be one
};

/// Keys are texts, numbers, none, objects and tuples of them: 1, 1.0 and true are one key, and so are all NaN. What is
/// looked through for a key is at the expense of `runtime`, where one is given.
class Dict {
public:
    using Item = std::pair<Value, Value>;

    /// Sets or replaces; the place of a key is where it was first set. Throws TemplateError for what cannot be a key.
    void set(Value key, Value value, Runtime* runtime = nullptr);
    void set(std::string_view key, Value value) { set(Value(key), std::move(value)); }
    /// Null where there is none; throws TemplateError for what cannot be a key.
    [[nodiscard]] const Value* find(const Value& key, Runtime* runtime = nullptr) const;
    [[nodiscard]] const Value* find(std::string_view key) const { return find(Value(key)); }
    [[nodiscard]] const std::vector<Item>& items() const { return items_; }
    [[nodiscard]] std::size_t size() const { return items_.size(); }
    [[nodiscard]] int depth() const { return depth_; }

private:
    static constexpr std::uint32_t kFree = UINT32_MAX;
    static constexpr int kMostSteps = 300;  // from slot to slot; a million keys of no ill will need a tenth
    struct Slot {
        std::uint32_t hash = 0;
        std::uint32_t place = kFree;  // in items_
    };
    /// Where the key is, or the free slot where it belongs.
    [[nodiscard]] std::size_t slot_of(const Value& key, std::uint32_t hash, Runtime* runtime) const;

    std::vector<Item> items_;
    std::vector<Slot> slots_;  // a hash table, at least half of it free
    int depth_ = 1;
};

/// What a value is the absence of.
struct Undefined {
    enum class Of : std::uint8_t { Variable, Attribute, Element, Other } of = Of::Other;
    std::string what;          // its name, the element's key as Python shows it, or all that is to be said
    std::string_view owner{};  // the type of the object that lacks it

    /// The message of Jinja's UndefinedError.
    [[nodiscard]] std::string message() const;
};

/// Whether it can be a key.
[[nodiscard]] bool is_hashable(const Value& value);
/// Python's bool(); generators and objects are true.
[[nodiscard]] bool is_true(const Value& value);
/// Python's name of the type: "str", "NoneType", "dict".
[[nodiscard]] std::string_view type_name(const Value& value);
/// Throws TemplateError with the reason where `value` is undefined.
void refuse_undefined(const Value& value);

}  // namespace slipstream::jinja
