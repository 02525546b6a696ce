// Filters that are generators in Python: nothing happens before the first item is asked for, and errors of items that
// nobody asks for never come up.
#include "runtime/text/chat/arguments.h"
#include "runtime/text/chat/attribute_path.h"
#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/filters.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/value_tests.h"

namespace slipstream::jinja::filters {

namespace {

int depth_of(const Arguments& arguments) {
    int depth = 0;
    for (const Value& value : arguments.positional) depth = std::max(depth, value.depth());
    for (const auto& [name, value] : arguments.named) depth = std::max(depth, value.depth());
    return depth;
}

/// A generator over an input: opens the input when the first item is asked for.
class Generator : public Iterator {
public:
    /// Whether an input that is false (none, undefined, 0) counts as empty, or is iterated over like any other.
    enum class FalseInput : std::uint8_t { Empty, Iterated };
    Generator(Value input, Arguments arguments, FalseInput false_input)
        : input_(std::move(input)), arguments_(std::move(arguments)), false_input_(false_input) {}

    [[nodiscard]] int depth() const final { return std::max(input_.depth(), depth_of(arguments_)) + 1; }
    [[nodiscard]] std::optional<Value> next(Runtime& runtime) final {
        const Runtime::Level level(runtime);
        runtime.spend(1);
        if (!has_begun_) {
            has_begun_ = true;
            is_over_ = false_input_ == FalseInput::Empty && !is_true(input_);
            if (!is_over_) {
                begin(runtime);
                source_ = iterate(runtime, input_);
            }
        }
        std::optional<Value> item;
        if (!is_over_) item = generate(runtime);
        is_over_ = !item;
        return item;
    }

protected:
    virtual void begin(Runtime& runtime) = 0;
    [[nodiscard]] virtual std::optional<Value> generate(Runtime& runtime) = 0;
    [[nodiscard]] std::optional<Value> take(Runtime& runtime) { return source_->next(runtime); }
    [[nodiscard]] Arguments& arguments() { return arguments_; }

private:
    Value input_;
    Arguments arguments_;
    FalseInput false_input_;
    std::shared_ptr<Iterator> source_;
    bool has_begun_ = false;
    bool is_over_ = false;
};

Value take_first(Arguments& arguments, std::string_view otherwise) {
    if (arguments.positional.empty()) throw TemplateError(std::string(otherwise));
    Value first = std::move(arguments.positional.front());
    arguments.positional.erase(arguments.positional.begin());
    return first;
}

// The pairs of a dict; of something undefined there are none.
class Items final : public Generator {
public:
    explicit Items(const Value& input) : Generator(input, {}, FalseInput::Iterated), mapping_(input) {}

private:
    void begin(Runtime& runtime) override {
        if (mapping_.is_undefined()) return;
        if (!mapping_.is(Kind::Dict)) fail("Can only get item pairs from a mapping.");
        pairs_ = iterate(runtime, Value(runtime.make<DictView>(mapping_, DictView::Part::Items)));
    }
    std::optional<Value> generate(Runtime& runtime) override { return pairs_ ? pairs_->next(runtime) : std::nullopt; }

    Value mapping_;
    std::shared_ptr<Iterator> pairs_;
};

// map("filter", arguments...) or map(attribute="path", default=...).
class Map final : public Generator {
public:
    Map(Value input, Arguments given) : Generator(std::move(input), std::move(given), FalseInput::Empty) {}

private:
    void begin(Runtime& /*runtime*/) override {
        const auto& named = arguments().named;
        const bool has_attribute =
            std::any_of(named.begin(), named.end(), [](const auto& entry) { return entry.first == "attribute"; });
        if (arguments().positional.empty() && has_attribute) {
            const auto given = bind("map", arguments(), {"attribute", "default"}, 1);
            path_.emplace(given[0]);
            otherwise_ = given[1];
            return;
        }
        const Value name = take_first(arguments(), "map requires a filter argument");
        filter_ = name.is_text() ? find_filter(name.view()) : nullptr;
        if (filter_ == nullptr) fail("No filter named {}.", shown(name));
    }
    std::optional<Value> generate(Runtime& runtime) override {
        auto item = take(runtime);
        if (!item) return std::nullopt;
        if (path_) return path_->of(runtime, std::move(*item), otherwise_);
        return filter_->body(runtime, *item, arguments());
    }

    std::optional<AttributePath> path_;
    Value otherwise_;
    const Filter* filter_ = nullptr;
};

enum class Keep : std::uint8_t { Passing, Failing };
enum class Look : std::uint8_t { AtItem, AtAttribute };

// select("test", arguments...), and the same by an attribute of the items.
class Select final : public Generator {
public:
    Select(Value input, Arguments given, Keep keep, Look look)
        : Generator(std::move(input), std::move(given), FalseInput::Empty), keep_(keep), look_(look) {}

private:
    void begin(Runtime& /*runtime*/) override {
        if (look_ == Look::AtAttribute) path_.emplace(take_first(arguments(), "Missing parameter for attribute name"));
        if (arguments().positional.empty()) return;
        const Value name = take_first(arguments(), "");
        test_ = name.is_text() ? find_test(name.view()) : nullptr;
        if (test_ == nullptr) fail("No test named {}.", shown(name));
    }
    std::optional<Value> generate(Runtime& runtime) override {
        while (auto item = take(runtime)) {
            const Value looked_at = path_ ? path_->of(runtime, *item) : *item;
            const bool passes = test_ == nullptr ? is_true(looked_at) : test_->body(runtime, looked_at, arguments());
            if (passes == (keep_ == Keep::Passing)) return item;
        }
        return std::nullopt;
    }

    Keep keep_;
    Look look_;
    std::optional<AttributePath> path_;
    const ValueTest* test_ = nullptr;
};

class Unique final : public Generator {
public:
    Unique(Value input, Arguments given) : Generator(std::move(input), std::move(given), FalseInput::Iterated) {}
    void release() override { seen_ = Dict(); }

private:
    void begin(Runtime& /*runtime*/) override {
        const auto given = bind("unique", arguments(), {"case_sensitive", "attribute"}, 0);
        letter_case_ = truth_or(given[0], false) ? LetterCase::Kept : LetterCase::Ignored;
        path_.emplace(given[1]);
    }
    std::optional<Value> generate(Runtime& runtime) override {
        while (auto item = take(runtime)) {
            Value key = comparable(runtime, path_->of(runtime, *item), letter_case_);
            if (!is_hashable(key)) fail("unhashable type: '{}'", jinja::type_name(key));
            runtime.spend_for(key);
            if (seen_.find(key) != nullptr) continue;
            seen_.set(std::move(key), Value(true));
            return item;
        }
        return std::nullopt;
    }

    LetterCase letter_case_ = LetterCase::Ignored;
    std::optional<AttributePath> path_;
    Dict seen_;
};

class Batch final : public Generator {
public:
    Batch(Value input, Arguments given) : Generator(std::move(input), std::move(given), FalseInput::Iterated) {}

private:
    void begin(Runtime& /*runtime*/) override {
        const auto given = bind("batch", arguments(), {"linecount", "fill_with"}, 1);
        size_ = int_of(given[0], "batch() linecount");
        fill_ = given[1];
    }
    std::optional<Value> generate(Runtime& runtime) override {
        std::vector<Value> row;
        if (first_of_next_) row.push_back(*std::exchange(first_of_next_, std::nullopt));
        while (auto item = take(runtime)) {
            // An empty row comes first where rows take no items at all.
            if (static_cast<std::int64_t>(row.size()) == size_) {
                first_of_next_ = std::move(item);
                return runtime.list(std::move(row));
            }
            row.push_back(std::move(*item));
        }
        if (row.empty()) return std::nullopt;
        const std::int64_t missing = size_ - static_cast<std::int64_t>(row.size());
        if (is_given_and_some(fill_) && missing > 0) {
            runtime.spend(missing);
            row.insert(row.end(), static_cast<std::size_t>(missing), fill_);
        }
        return runtime.list(std::move(row));
    }

    std::int64_t size_ = 0;
    Value fill_;
    std::optional<Value> first_of_next_;
};

class Slices final : public Generator {
public:
    Slices(Value input, Arguments given) : Generator(std::move(input), std::move(given), FalseInput::Iterated) {}

private:
    void begin(Runtime& /*runtime*/) override {
        const auto given = bind("slice", arguments(), {"slices", "fill_with"}, 1);
        n_slices_ = int_of(given[0], "slice() slices");
        fill_ = given[1];
    }
    std::optional<Value> generate(Runtime& runtime) override {
        if (n_done_ == 0) {
            while (auto item = take(runtime)) items_.push_back(std::move(*item));
            if (n_slices_ == 0) fail("integer division or modulo by zero");
        }
        if (n_done_ >= n_slices_) return std::nullopt;
        const auto length = static_cast<std::int64_t>(items_.size());
        // The first slices take what does not divide evenly, one item each.
        const bool extra = n_done_ < length % n_slices_;
        const std::int64_t size = length / n_slices_ + (extra ? 1 : 0);
        const auto begin = items_.begin() + at_;
        std::vector<Value> slice(begin, begin + size);
        at_ += size;
        ++n_done_;
        if (is_given_and_some(fill_) && !extra) slice.push_back(fill_);
        return runtime.list(std::move(slice));
    }

    std::int64_t n_slices_ = 0;
    std::int64_t n_done_ = 0;
    std::int64_t at_ = 0;
    Value fill_;
    std::vector<Value> items_;
};

}  // namespace

Value map(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return Value(runtime.make<Map>(input, arguments));
}
Value items(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("items", arguments, {}, 0));
    return Value(runtime.make<Items>(input));
}
Value select(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return Value(runtime.make<Select>(input, arguments, Keep::Passing, Look::AtItem));
}
Value reject(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return Value(runtime.make<Select>(input, arguments, Keep::Failing, Look::AtItem));
}
Value select_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return Value(runtime.make<Select>(input, arguments, Keep::Passing, Look::AtAttribute));
}
Value reject_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return Value(runtime.make<Select>(input, arguments, Keep::Failing, Look::AtAttribute));
}
// Python hands arguments to the parameters of a generator at once, and looks at them when the first item is asked for.
Value unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("unique", arguments, {"case_sensitive", "attribute"}, 0));
    return Value(runtime.make_mutable<Unique>(input, arguments));
}
Value batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("batch", arguments, {"linecount", "fill_with"}, 1));
    return Value(runtime.make<Batch>(input, arguments));
}
Value slices(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("slice", arguments, {"slices", "fill_with"}, 1));
    return Value(runtime.make<Slices>(input, arguments));
}

}  // namespace slipstream::jinja::filters
