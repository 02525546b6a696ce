// Values of the template language, with Python's meaning: none, bool, int (64 bits), float, str, list, tuple, dict in
// insertion order, Python's ranges, dict views and generators (here: sequences of their own kinds), objects, and
// "undefined", which remembers what is missing. A Value is a handle to shared contents. The contents never change after
// they are made (this includes lists and dicts, as in Jinja's sandbox), except inside objects. Each container knows its
// depth, which is limited so that recursion over it is safe.
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
    Missing,  // no value: a variable or argument that is not set; never passed to filters or operators
    Undefined,
    None,
    Bool,
    Int,
    LongInt,  // an integer of JSON that does not fit 64 bits: printed and compared by its digits, never computed with
    Float,
    Text,
    List,  // the kinds from List to Generator are sequences
    Tuple,
    Range,
    Keys,
    Values,
    Items,
    Generator,  // of map(), select() and similar filters: can be read once, has no length
    Dict,
    Object
};

/// Limits how deeply containers may be nested, so that recursion over a value cannot overflow the stack.
inline constexpr int kMaxValueDepth = 200;

/// The contents of a Value. Gives back the bytes that it took from an account when it is destroyed.
class Cell {
public:
    Cell() = default;
    Cell(Account& account, std::size_t bytes) { charge(account, bytes); }
    Cell(const Cell&) = delete;
    Cell& operator=(const Cell&) = delete;
    virtual ~Cell() {
        if (account_ != nullptr) account_->give_back(bytes_);
    }
    /// Takes `bytes` from the account for as long as this cell lives. Throws TemplateError if the account has no more.
    /// All calls for one cell must use the same account, which must outlive the cell.
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
    /// `cell` must hold what the kind needs, for example a Box<Text> for Kind::Text.
    Value(Kind kind, std::shared_ptr<Cell> cell) : kind_(kind), cell_(std::move(cell)) {}

    [[nodiscard]] static Value none() { return {Kind::None, nullptr}; }
    /// Returns a text that was said (came from a message): no control token is made of it.
    [[nodiscard]] static Value said(std::string text);
    [[nodiscard]] static Value undefined(Undefined why);
    /// sequence(), list() and dict() return a container with the given contents. They throw TemplateError if the
    /// nesting exceeds kMaxValueDepth.
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

    /// The following functions return the contents of a value. Each must be called only for the kinds of its result;
    /// real() also takes ints and bools. References are valid as long as a value with these contents lives.
    [[nodiscard]] bool truth() const { return scalar_ != 0; }
    [[nodiscard]] std::int64_t integer() const { return scalar_; }  // Int or Bool
    [[nodiscard]] double real() const {
        return kind_ == Kind::Float ? std::bit_cast<double>(scalar_) : static_cast<double>(scalar_);
    }
    [[nodiscard]] const Text& text() const { return content<Text>(); }
    [[nodiscard]] std::string_view view() const;  // bytes of a Text, digits of a LongInt
    [[nodiscard]] const std::vector<Value>& items() const;
    [[nodiscard]] Sequence& sequence() const { return content<Sequence>(); }
    [[nodiscard]] const Dict& dict() const { return content<Dict>(); }
    [[nodiscard]] const Undefined& undefined() const { return content<Undefined>(); }
    [[nodiscard]] Object& object() const;

    /// Returns the contents; null for kinds without a cell.
    [[nodiscard]] const std::shared_ptr<Cell>& cell() const { return cell_; }
    [[nodiscard]] bool is_same_cell(const Value& other) const { return cell_ != nullptr && cell_ == other.cell_; }
    /// Returns how deeply containers are nested in the value; 0 if it is not a container.
    [[nodiscard]] int depth() const;

private:
    template <typename T>
    [[nodiscard]] T& content() const {
        return static_cast<Box<T>&>(*cell_).content;
    }

    Kind kind_ = Kind::Missing;
    std::int64_t scalar_ = 0;  // the bits of a double for Float
    std::shared_ptr<Cell> cell_;
};

/// A str: UTF-8, indexed by code points. Bytes that are not UTF-8 count as one code point per maximal broken part
/// (utf8.h).
struct Text {
    [[nodiscard]] std::string_view bytes() const { return marked.bytes; }

    MarkedText marked;
    bool is_safe = false;  // made by the filter `safe`: text that is added to it with + is escaped for HTML
};

struct Sequence {
    std::vector<Value> items;
    int depth = 1;
    std::string shown;       // of a Range: its repr() in Python
    std::size_t n_read = 0;  // of a Generator: number of items read
    bool is_key = false;     // of a Tuple: all items can be keys of a dict
    bool is_group = false;   // of a Tuple: a group of the filter groupby, with the attributes grouper and list
};

/// A dict in insertion order. Keys are texts, numbers, none, objects and tuples of them; 1, 1.0 and true are the same
/// key, and all NaN are one key. If a `runtime` is given, look-ups charge it for their steps.
class Dict {
public:
    using Item = std::pair<Value, Value>;

    /// Sets or replaces the value of `key`. A key keeps the position at which it was first set. Throws TemplateError if
    /// `key` is not hashable or has too many collisions.
    void set(Value key, Value value, Runtime* runtime = nullptr);
    void set(std::string_view key, Value value) { set(Value(key), std::move(value)); }
    /// Returns the value of `key`, or null if there is none. Throws TemplateError if `key` is not hashable or has too
    /// many collisions.
    [[nodiscard]] const Value* find(const Value& key, Runtime* runtime = nullptr) const;
    [[nodiscard]] const Value* find(std::string_view key) const { return find(Value(key)); }
    [[nodiscard]] const std::vector<Item>& items() const { return items_; }
    [[nodiscard]] std::size_t size() const { return items_.size(); }
    [[nodiscard]] int depth() const { return depth_; }

private:
    static constexpr std::uint32_t kFree = UINT32_MAX;
    // Limits the slots that one look-up visits; more are taken as keys that were made to collide. For a million
    // ordinary keys, a tenth is enough.
    static constexpr int kMostSteps = 300;
    struct Slot {
        std::uint32_t hash = 0;
        std::uint32_t place = kFree;  // index in items_
    };
    /// Returns the slot of `key`, or the free slot where it would be added. Throws TemplateError after kMostSteps
    /// slots.
    [[nodiscard]] std::size_t slot_of(const Value& key, std::uint32_t hash, Runtime* runtime) const;

    std::vector<Item> items_;
    std::vector<Slot> slots_;  // hash table; at least half of the slots are free
    int depth_ = 1;
};

/// Describes the missing value that an undefined value stands for.
struct Undefined {
    enum class Of : std::uint8_t { Variable, Attribute, Element, Other } of = Of::Other;
    std::string what;  // name of the missing variable or attribute, repr() of the element's key, or the whole message
                       // (Of::Other)
    std::string_view owner{};  // type of the object that lacks the attribute or element

    /// Returns the message of Jinja's UndefinedError.
    [[nodiscard]] std::string message() const;
};

/// Returns whether `value` can be a key of a dict.
[[nodiscard]] bool is_hashable(const Value& value);
/// Returns Python's bool(value). Generators and objects are true.
[[nodiscard]] bool is_true(const Value& value);
/// Returns Python's name of the type: "str", "NoneType", "dict".
[[nodiscard]] std::string_view type_name(const Value& value);
/// Throws TemplateError with the reason if `value` is undefined.
void refuse_undefined(const Value& value);

}  // namespace slipstream::jinja
