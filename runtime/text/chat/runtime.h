// The state of one rendering: its budget (steps, bytes, depth), the current line, the time, and the functions that make
// values and charge the budget; and the base class of a template's objects. Objects that change may refer to each other
// in cycles (a namespace that holds itself), so the runtime keeps such objects alive and empties all of them when it is
// destroyed.
#pragma once

#include <atomic>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/value.h"

namespace slipstream {

/// Limits of one rendering. Templates come with models from any source; a template that loops for ever or multiplies
/// text must end with an error. The limits are counted, not timed, so that the same template and inputs end the same
/// way on every machine.
struct TemplateLimits {
    /// Limits the steps: nodes evaluated, items visited, and pieces of 64 bytes of text copied or searched. This many
    /// steps take less than a second; a conversation of a thousand messages takes some hundred thousand.
    std::int64_t max_steps = 5'000'000;
    /// Limits the bytes of any one text, including the prompt: 8 MiB, more than two million tokens.
    std::size_t max_text_bytes = std::size_t{8} << 20U;
    /// Limits the bytes of all values and variables that are alive at the same time: 32 MiB.
    std::size_t max_live_bytes = std::size_t{32} << 20U;
    /// Checked every 4096 steps. If it is true, the rendering ends with a TemplateError. Null: cannot be cancelled.
    const std::atomic<bool>* cancel = nullptr;
};

/// Limits the source of a template, in bytes: 256 KiB. The largest published ones have about 30,000.
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 18U;

namespace jinja {

class Runtime;

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> named;  // names are views of the template or of `star_star`
    Value star_star{};                                      // dict of the arguments that ** gave
};

/// A value that can be called or has attributes of its own: a function, bound method, macro, loop or namespace.
class Object : public Cell {
public:
    [[nodiscard]] virtual std::string_view type_name() const = 0;
    /// Returns its repr() in Python, without the address that Python gives for most objects.
    [[nodiscard]] virtual std::string shown() const;
    /// Returns how deeply containers are nested in the values that the object refers to; 0 if there are none.
    [[nodiscard]] virtual int depth() const { return 0; }
    [[nodiscard]] virtual bool is_callable() const { return false; }
    /// Returns the attribute `name`, or nullopt if there is none.
    [[nodiscard]] virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name);
    [[nodiscard]] virtual Value call(Runtime& runtime, Arguments& arguments);
    /// Drops the references to other values. The runtime calls it when the rendering ends, since objects may refer to
    /// each other in cycles.
    virtual void release() {}
};

/// The result of namespace(...), the only object whose attributes a template can set.
class Namespace final : public Object {
public:
    [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    void release() override { attributes_.clear(); }
    /// Sets the attribute `name`. Throws TemplateError if it begins with an underscore or the budget is used up.
    void set(Runtime& runtime, std::string_view name, Value value);

private:
    std::vector<std::pair<std::string, Value>> attributes_;
};

class Runtime {
public:
    Runtime(const TemplateLimits& limits, const std::tm& now)
        : limits_(limits),
          now_(now),
          account_(limits.max_live_bytes),
          steps_left_(limits.max_steps),
          look_at_(limits.max_steps - kStepsBetween) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
    ~Runtime();

    /// Takes `steps` from the budget. Throws TemplateError if fewer are left, or if the rendering was cancelled.
    void spend(std::int64_t steps) {
        if (steps > steps_left_) out_of_steps();
        steps_left_ -= steps;
        if (steps_left_ <= look_at_) look_at_cancel();
    }
    /// Charges bytes / 64 + 1 steps, for reading or copying `bytes` bytes.
    void spend_bytes(std::size_t bytes) { spend(static_cast<std::int64_t>(bytes / kBytesPerStep) + 1); }
    /// Charges bytes / 4 + 1 steps, for iterating over the characters of a text of `bytes` bytes.
    void spend_chars(std::size_t bytes) { spend(static_cast<std::int64_t>(bytes / kCharsPerStep) + 1); }

    // Functions that make values during a rendering. They charge the budget and throw TemplateError if a limit is
    // exceeded.
    [[nodiscard]] Value text(Text content);
    [[nodiscard]] Value text(std::string content) { return text(Text{{std::move(content), {}}}); }
    [[nodiscard]] Value text(TextBuilder& out) { return text(Text{out.take()}); }
    /// Returns the bytes `span` of `text` as a value, with their marks.
    [[nodiscard]] Value part(const Text& text, TextSpan span);
    [[nodiscard]] Value sequence(Kind kind, std::vector<Value> items);
    [[nodiscard]] Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
    [[nodiscard]] Value dict(Dict dict);
    [[nodiscard]] Value undefined(Undefined why);
    [[nodiscard]] Value undefined(std::string_view why) { return undefined(Undefined{.what = std::string(why)}); }
    [[nodiscard]] TextBuilder builder() { return TextBuilder(account_, limits_.max_text_bytes); }
    /// Charges the account for `n_items` elements of scratch memory of type T. The charge ends when the returned cell
    /// is destroyed.
    template <typename T = Value>
    [[nodiscard]] Cell scratch(std::size_t n_items) {
        return {account_, n_items * sizeof(T)};
    }
    /// Throws TemplateError if the account has no room for a list of `n_items`. Takes nothing from the account.
    void check_items(std::size_t n_items) const;
    /// Makes a cell that is filled later, an object or a scope, and charges the account for its own size.
    template <typename T, typename... Args>
    [[nodiscard]] std::shared_ptr<T> make(Args&&... args) {
        auto cell = std::make_shared<T>(std::forward<Args>(args)...);
        cell->charge(account_, sizeof(T) + kCellBytes);
        return cell;
    }
    /// Keeps `object` alive until the rendering ends, when its release() is called.
    void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

    [[nodiscard]] Account& account() { return account_; }
    [[nodiscard]] const std::tm& now() const { return now_; }

    /// Line of the template, from 1, that is being rendered; for the message of an error.
    int line = 0;

    /// A guard around one level of recursion. The constructor throws TemplateError beyond kMaxDepth levels.
    class Level {
    public:
        explicit Level(Runtime& runtime) : runtime_(runtime) {
            if (++runtime_.depth_ > kMaxDepth) too_deep();
        }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ~Level() { --runtime_.depth_; }

    private:
        Runtime& runtime_;
    };

private:
    /// Limits the depth of the recursion over expressions and statements, including macros that call macros. Each level
    /// takes 1 to 2 KiB of stack.
    static constexpr int kMaxDepth = 1000;
    // Steps between two checks of the cancel flag: they take about a millisecond, and the check costs nothing then.
    static constexpr std::int64_t kStepsBetween = 4096;
    // One step is charged for this many bytes that are read or copied, so that the limit of steps bounds such work,
    // too.
    static constexpr std::size_t kBytesPerStep = 64;
    // One step is charged for this many bytes of a text whose characters are visited one by one, which is slower than
    // copying.
    static constexpr std::size_t kCharsPerStep = 4;
    // Bytes charged per cell for the allocator's overhead, of the cell and of a vector or string in it.
    static constexpr std::size_t kCellBytes = 64;

    [[noreturn]] void out_of_steps() const;
    void look_at_cancel();
    [[noreturn]] static void too_deep();
    [[nodiscard]] Value charged(Value made, std::size_t bytes) {
        made.cell()->charge(account_, bytes + kCellBytes);
        return made;
    }

    const TemplateLimits limits_;
    const std::tm now_;
    Account account_;
    std::int64_t steps_left_;
    std::int64_t look_at_;  // the cancel flag is checked when steps_left_ falls to this
    int depth_ = 0;
    std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace jinja

}  // namespace slipstream
