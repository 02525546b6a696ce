// Values of the template language, with Python's meaning: none, bool, int (64 bits), float, str, list, tuple, dict in
// insertion order, objects (functions, namespaces, loops, iterators: objects.h), and "undefined", which remembers what
// it is the absence of. A Value is a small handle; what it points to never changes once made (lists and dicts too: the
// sandbox forbids their mutation), except inside objects.
// Every container knows its depth, limited so that recursion over it is safe, and its weight (how many values and
// 16-byte pieces of text a walk over it meets, counting shared parts each time), so that such a walk can be paid for
// before it begins.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace slipstream::jinja {

enum class Kind : std::uint8_t { Missing, Undefined, None, Bool, Int, Float, Text, List, Tuple, Dict, Object };

/// Nesting of containers and chains of lazy iterators stop here.
inline constexpr int kMaxValueDepth = 200;

class Dict;
class Object;
struct Sequence;
struct Text;
struct UndefinedInfo;

/// What a Value points to.
struct Cell {
    virtual ~Cell() = default;
};

class Value {
public:
    /// Missing: a variable that nobody has set. Never seen by filters and operators.
    Value() = default;
    template <std::same_as<bool> T>
    explicit Value(T truth) : kind_(Kind::Bool), integer_(truth ? 1 : 0) {}
    template <std::integral T>
    requires(!std::same_as<T, bool>) explicit Value(T number)
        : kind_(Kind::Int), integer_(static_cast<std::int64_t>(number)) {}
    explicit Value(double number) : kind_(Kind::Float), real_(number) {}
    explicit Value(std::string text);
    explicit Value(std::string_view text) : Value(std::string(text)) {}
    explicit Value(const char* text) : Value(std::string(text)) {}
    explicit Value(std::shared_ptr<Object> object);

    [[nodiscard]] static Value none();
    /// Text that counts as escaped for HTML (the filters `safe` and `escape`).
    [[nodiscard]] static Value markup(std::string text);
    /// These throw TemplateError where the nesting exceeds kMaxValueDepth.
    [[nodiscard]] static Value list(std::vector<Value> items);
    [[nodiscard]] static Value tuple(std::vector<Value> items);
    [[nodiscard]] static Value dict(Dict dict);
    [[nodiscard]] static Value dict(std::initializer_list<std::pair<std::string_view, Value>> items);
    /// A pair of `groupby`: a tuple whose parts answer to `grouper` and `list` as well.
    [[nodiscard]] static Value group(Value grouper, Value members);
    [[nodiscard]] static Value undefined(UndefinedInfo info);

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
    [[nodiscard]] bool is_missing() const { return kind_ == Kind::Missing; }
    [[nodiscard]] bool is_undefined() const { return kind_ == Kind::Undefined; }
    [[nodiscard]] bool is_none() const { return kind_ == Kind::None; }
    [[nodiscard]] bool is_text() const { return kind_ == Kind::Text; }
    [[nodiscard]] bool is_sequence() const { return kind_ == Kind::List || kind_ == Kind::Tuple; }
    [[nodiscard]] bool is_integral() const { return kind_ == Kind::Int || kind_ == Kind::Bool; }
    [[nodiscard]] bool is_number() const { return is_integral() || kind_ == Kind::Float; }

    /// Of the matching kinds only (a bug otherwise).
    [[nodiscard]] bool truth() const { return integer_ != 0; }
    [[nodiscard]] std::int64_t integer() const { return integer_; }  // Int or Bool
    [[nodiscard]] double real() const { return kind_ == Kind::Float ? real_ : static_cast<double>(integer_); }
    [[nodiscard]] const Text& text() const;
    [[nodiscard]] std::string_view view() const;  // the bytes of text()
    [[nodiscard]] const std::vector<Value>& items() const;
    [[nodiscard]] const Sequence& sequence() const;
    [[nodiscard]] const Dict& dict() const;
    [[nodiscard]] const UndefinedInfo& undefined_info() const;
    [[nodiscard]] Object& object() const;
    [[nodiscard]] std::shared_ptr<Object> object_ref() const;

    /// The address of what it points to; null for scalars.
    [[nodiscard]] const void* identity() const { return cell_.get(); }
    [[nodiscard]] int depth() const;
    [[nodiscard]] std::int64_t weight() const;

private:
    Value(Kind kind, std::shared_ptr<Cell> cell) : kind_(kind), cell_(std::move(cell)) {}

    Kind kind_ = Kind::Missing;
    union {
        std::int64_t integer_ = 0;  // NOLINT(readability-identifier-naming): private, though in a union
        double real_;               // NOLINT(readability-identifier-naming)
    };
    std::shared_ptr<Cell> cell_;
};

/// A str: UTF-8, counted in code points (a maximal broken part counts as one).
struct Text final : Cell {
    explicit Text(std::string content);
    [[nodiscard]] bool is_ascii() const { return n_chars == static_cast<std::int64_t>(bytes.size()); }

    std::string bytes;
    std::int64_t n_chars = 0;
    bool is_markup = false;
};

/// What lists and tuples hold.
struct Sequence final : Cell {
    explicit Sequence(std::vector<Value> elements);

    std::vector<Value> items;
    bool is_group = false;  // a pair of `groupby`, whose parts are called grouper and list
    int depth = 1;
    std::int64_t weight = 1;
};

/// Keys are what Python can hash: 1, 1.0 and true are one key.
class Dict final : public Cell {
public:
    using Item = std::pair<Value, Value>;

    /// Sets or replaces; the place of a key is where it was first set. The key is hashable (is_hashable()).
    void set(Value key, Value value);
    void set(std::string_view key, Value value) { set(Value(key), std::move(value)); }
    [[nodiscard]] const Value* find(const Value& key) const;
    [[nodiscard]] const Value* find(std::string_view key) const;
    [[nodiscard]] const std::vector<Item>& items() const { return items_; }
    [[nodiscard]] std::size_t size() const { return items_.size(); }
    [[nodiscard]] int depth() const { return depth_; }
    [[nodiscard]] std::int64_t weight() const { return weight_; }

private:
    [[nodiscard]] std::ptrdiff_t place_of(const Value& key) const;

    std::vector<Item> items_;
    std::unordered_multimap<std::size_t, std::uint32_t> index_;  // hash -> place; of larger dicts only
    int depth_ = 1;
    std::int64_t weight_ = 1;
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

/// Whether Python could hash it (lists and dicts it cannot).
[[nodiscard]] bool is_hashable(const Value& value);

/// Python's ==. Its cost is bounded by the smaller weight().
[[nodiscard]] bool equal(const Value& a, const Value& b);

/// Python's bool(); iterators and functions are true. `loop` has a length, so objects decide for themselves.
[[nodiscard]] bool is_true(const Value& value);

/// Python's name of the type: "str", "NoneType", "dict".
[[nodiscard]] std::string_view type_name(const Value& value);
/// As Jinja's messages about undefined values name it: "dict object", "None".
[[nodiscard]] std::string owner_name(const Value& value);

}  // namespace slipstream::jinja
