// Values of the template language, with Python's meaning: none, bool, int (64 bits), float, str, list, tuple, dict in
// insertion order, what Python makes of ranges, dict views and generators (lists of another kind here), objects, and
// "undefined", which remembers what it is the absence of. A Value is a handle of 16 bytes; what it points to is counted
// and never changes once made (lists and dicts too: the sandbox forbids it), except inside objects. Every container
// knows its depth, limited so that recursion over it is safe.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/text/chat/marked_text.h"

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

class Dict;
class Object;
struct Sequence;
struct Text;
struct UndefinedInfo;

/// What a Value points to. Counted by Values and Refs; gives back what it took from an account.
class Cell {
public:
    Cell() = default;
    Cell(const Cell&) = delete;
    Cell& operator=(const Cell&) = delete;
    virtual ~Cell() {
        if (account_ != nullptr) account_->give_back(bytes_);
    }
    void hold() { count_.fetch_add(1, std::memory_order_relaxed); }
    void drop() {
        if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }
    [[nodiscard]] bool is_shared() const { return count_.load(std::memory_order_relaxed) > 1; }
    /// Pays for `bytes` as long as this lives; throws TemplateError where the account has no more.
    void charge(Account& account, std::size_t bytes) {
        account.take(bytes);
        account_ = &account;
        bytes_ += bytes;
    }

private:
    std::atomic<std::uint32_t> count_{0};
    Account* account_ = nullptr;
    std::size_t bytes_ = 0;
};

/// Keeps a cell alive.
template <typename T>
class Ref {
public:
    Ref() = default;
    explicit Ref(T* cell) : cell_(cell) {
        if (cell_ != nullptr) cell_->hold();
    }
    Ref(const Ref& other) : Ref(other.cell_) {}
    Ref(Ref&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
    Ref& operator=(Ref other) noexcept {
        std::swap(cell_, other.cell_);
        return *this;
    }
    ~Ref() {
        if (cell_ != nullptr) cell_->drop();
    }
    [[nodiscard]] T* get() const { return cell_; }
    T& operator*() const { return *cell_; }
    T* operator->() const { return cell_; }

private:
    T* cell_ = nullptr;
};

class Value {
public:
    Value() = default;
    template <std::same_as<bool> T>
    explicit Value(T truth) : kind_(Kind::Bool) {
        integer_ = truth ? 1 : 0;
    }
    template <std::integral T>
    requires(!std::same_as<T, bool>) explicit Value(T number) : kind_(Kind::Int) {
        integer_ = static_cast<std::int64_t>(number);
    }
    explicit Value(double number) : kind_(Kind::Float) { real_ = number; }
    explicit Value(MarkedText text);
    explicit Value(std::string text) : Value(MarkedText{std::move(text), {}}) {}
    explicit Value(std::string_view text) : Value(std::string(text)) {}
    explicit Value(const char* text) : Value(std::string(text)) {}
    /// A cell of that kind.
    Value(Kind kind, Cell* cell) : kind_(kind) {
        cell_ = cell;
        cell_->hold();
    }
    Value(const Value& other) : kind_(other.kind_) {
        integer_ = other.integer_;
        if (has_cell()) cell_->hold();
    }
    Value(Value&& other) noexcept : kind_(other.kind_) {
        integer_ = other.integer_;
        other.kind_ = Kind::Missing;
    }
    Value& operator=(Value other) noexcept {
        std::swap(kind_, other.kind_);
        std::swap(integer_, other.integer_);
        return *this;
    }
    ~Value() {
        if (has_cell()) cell_->drop();
    }

    [[nodiscard]] static Value none();
    /// Text that somebody said: no control token is made of it.
    [[nodiscard]] static Value said(std::string text);
    [[nodiscard]] static Value long_integer(std::string digits);
    /// These throw TemplateError where the nesting exceeds kMaxValueDepth.
    [[nodiscard]] static Value sequence(Kind kind, std::vector<Value> items);
    [[nodiscard]] static Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
    [[nodiscard]] static Value dict(Dict dict);
    [[nodiscard]] static Value dict(std::initializer_list<std::pair<std::string_view, Value>> items);
    [[nodiscard]] static Value undefined(UndefinedInfo info);

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
    [[nodiscard]] bool is_missing() const { return kind_ == Kind::Missing; }
    [[nodiscard]] bool is_undefined() const { return kind_ == Kind::Undefined; }
    [[nodiscard]] bool is_none() const { return kind_ == Kind::None; }
    [[nodiscard]] bool is_text() const { return kind_ == Kind::Text; }
    [[nodiscard]] bool is_sequence() const { return kind_ >= Kind::List && kind_ <= Kind::Generator; }
    [[nodiscard]] bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }
    [[nodiscard]] bool is_number() const { return is_integral() || kind_ == Kind::Float; }

    /// Of the matching kinds only.
    [[nodiscard]] bool truth() const { return integer_ != 0; }
    [[nodiscard]] std::int64_t integer() const { return integer_; }  // Int or Bool
    [[nodiscard]] double real() const { return kind_ == Kind::Float ? real_ : static_cast<double>(integer_); }
    [[nodiscard]] const Text& text() const;
    [[nodiscard]] std::string_view view() const;  // the bytes of a Text, the digits of a LongInt
    [[nodiscard]] const std::vector<Value>& items() const;
    [[nodiscard]] Sequence& sequence() const;
    [[nodiscard]] const Dict& dict() const;
    [[nodiscard]] const UndefinedInfo& undefined_info() const;
    [[nodiscard]] Object& object() const;

    /// Null for scalars.
    [[nodiscard]] Cell* cell() const { return has_cell() ? cell_ : nullptr; }
    /// How deep containers nest in it; 0 for what is none.
    [[nodiscard]] int depth() const;

private:
    [[nodiscard]] bool has_cell() const {
        return kind_ == Kind::Undefined || kind_ == Kind::LongInt || kind_ >= Kind::Text;
    }

    Kind kind_ = Kind::Missing;
    union {
        std::int64_t integer_ = 0;  // NOLINT(readability-identifier-naming): private, though in a union
        double real_;               // NOLINT(readability-identifier-naming)
        Cell* cell_;                // NOLINT(readability-identifier-naming)
    };
};

/// A str: UTF-8, counted in code points (a maximal broken part counts as one).
struct Text final : Cell {
    explicit Text(MarkedText content) : marked(std::move(content)) {}
    [[nodiscard]] std::string_view bytes() const { return marked.bytes; }
    [[nodiscard]] std::int64_t n_chars() const;
    [[nodiscard]] bool is_ascii() const { return n_chars() == static_cast<std::int64_t>(marked.bytes.size()); }

    MarkedText marked;
    bool is_safe = false;  // by the filter `safe`: what is added to it with + is escaped for HTML

private:
    mutable std::atomic<std::int64_t> n_chars_{-1};  // counted when somebody asks
};

struct Sequence final : Cell {
    explicit Sequence(std::vector<Value> elements);

    std::vector<Value> items;
    std::string shown;       // of a Range: as Python shows it
    std::size_t n_read = 0;  // of a Generator
    int depth = 1;
};

/// Keys are what Python can hash: 1, 1.0 and true are one key.
class Dict final : public Cell {
public:
    using Item = std::pair<Value, Value>;
    Dict() = default;
    Dict(Dict&& other) noexcept
        : items_(std::move(other.items_)), index_(std::move(other.index_)), depth_(other.depth_) {}

    /// Sets or replaces; the place of a key is where it was first set. The key is hashable (is_hashable()).
    void set(Value key, Value value);
    void set(std::string_view key, Value value) { set(Value(key), std::move(value)); }
    [[nodiscard]] const Value* find(const Value& key) const;
    [[nodiscard]] const Value* find(std::string_view key) const;
    [[nodiscard]] const std::vector<Item>& items() const { return items_; }
    [[nodiscard]] std::size_t size() const { return items_.size(); }
    [[nodiscard]] int depth() const { return depth_; }

private:
    [[nodiscard]] std::ptrdiff_t place_of(const Value& key) const;

    std::vector<Item> items_;
    std::unordered_multimap<std::size_t, std::uint32_t> index_;  // hash -> place; of larger dicts only
    int depth_ = 1;
};

/// Why a value is undefined: `hint` if there is one; else what an object of `owner_type` lacks, an attribute `name` or
/// the element `key`; else the variable `name`.
struct UndefinedInfo {
    std::string hint;
    std::string owner_type;  // "dict object"; empty for a variable
    std::string name;
    std::string key;  // as Python shows it; where the element was asked for by something that is no text
    /// The message of Jinja's UndefinedError.
    [[nodiscard]] std::string message() const;
};

/// Whether Python could hash it: lists, dicts and tuples with such inside it could not.
[[nodiscard]] bool is_hashable(const Value& value);
/// Python's == of keys: what is_hashable().
[[nodiscard]] bool same_key(const Value& a, const Value& b);
/// Python's bool(); generators and objects are true.
[[nodiscard]] bool is_true(const Value& value);
/// Python's name of the type: "str", "NoneType", "dict".
[[nodiscard]] std::string_view type_name(const Value& value);
/// As Jinja's messages about undefined values name it: "dict object", "None".
[[nodiscard]] std::string owner_name(const Value& value);
/// Throws TemplateError with the reason where `value` is undefined.
void refuse_undefined(const Value& value);

}  // namespace slipstream::jinja
