// What one rendering has at hand: its budget (steps, bytes, depth), the line it is at, the time, and the makers of
// values, which charge the budget; and the objects of a template. Objects that change may come to refer to each other
// in circles (a namespace that holds itself), so the runtime keeps those alive and empties them all when it ends.
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

/// How much a rendering may take: templates come with models, from anywhere, and one that loops for ever or multiplies
/// text must end with a message. Counted, not timed: the same template and input end the same way on every machine.
struct TemplateLimits {
    /// Nodes evaluated, items walked over, pieces of 64 bytes of text copied or looked through. All of them take less
    /// than a second; a conversation of a thousand messages takes some hundred thousand.
    std::int64_t max_steps = 5'000'000;
    /// Of any one text, the prompt included: two million tokens and more.
    std::size_t max_text_bytes = std::size_t{8} << 20U;
    /// Of all values and variables that are alive at a time.
    std::size_t max_live_bytes = std::size_t{32} << 20U;
    /// Looked at every few thousand steps: a rendering ends with a TemplateError once it is true.
    const std::atomic<bool>* cancel = nullptr;
};

/// Of a template's source, in bytes; the largest published ones have 30 thousand.
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 18U;

namespace jinja {

class Runtime;

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> named;  // names of the template
};

/// What is called or has attributes of its own: functions and bound methods, macros, loops, namespaces.
class Object : public Cell {
public:
    [[nodiscard]] virtual std::string_view type_name() const = 0;
    /// How deep containers nest in what can be reached by it.
    [[nodiscard]] virtual int depth() const { return 0; }
    [[nodiscard]] virtual bool is_callable() const { return false; }
    /// Nothing where there is no such attribute.
    [[nodiscard]] virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name);
    [[nodiscard]] virtual Value call(Runtime& runtime, Arguments& arguments);
    /// Lets go of other values, when the rendering ends: objects may hold each other in circles.
    virtual void release() {}
};

/// namespace(...): the one thing a template can write to.
class Namespace final : public Object {
public:
    [[nodiscard]] std::string_view type_name() const override { return "Namespace"; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    void release() override { attributes_.clear(); }
    /// Throws TemplateError for names that begin with an underscore.
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

    /// Throws TemplateError where the budget is used up.
    void spend(std::int64_t steps) {
        if (steps > steps_left_) out_of_steps();
        steps_left_ -= steps;
        if (steps_left_ <= look_at_) look_at_cancel();
    }
    /// Pays for a look at that many bytes, or a copy.
    void spend_bytes(std::size_t bytes) { spend(static_cast<std::int64_t>(bytes / kBytesPerStep) + 1); }
    /// Pays for a walk over the characters of that many bytes.
    void spend_chars(std::size_t bytes) { spend(static_cast<std::int64_t>(bytes / kCharsPerStep) + 1); }

    // Values made while rendering; they throw TemplateError past a limit.
    [[nodiscard]] Value text(Text content);
    [[nodiscard]] Value text(std::string content) { return text(Text{{std::move(content), {}}}); }
    [[nodiscard]] Value text(TextBuilder& out) { return text(Text{out.take()}); }
    /// A part of `text`, with its marks.
    [[nodiscard]] Value part(const Text& text, TextSpan span);
    [[nodiscard]] Value sequence(Kind kind, std::vector<Value> items);
    [[nodiscard]] Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
    [[nodiscard]] Value dict(Dict dict);
    [[nodiscard]] Value undefined(Undefined why);
    [[nodiscard]] Value undefined(std::string_view why) { return undefined(Undefined{.what = std::string(why)}); }
    [[nodiscard]] TextBuilder builder() { return TextBuilder(account_, limits_.max_text_bytes); }
    /// Pays for what is no value yet, or no longer.
    template <typename T = Value>
    [[nodiscard]] Cell scratch(std::size_t n_items) {
        return {account_, n_items * sizeof(T)};
    }
    /// Throws where a list of so many items would pass the limit.
    void check_items(std::size_t n_items) const;
    /// A cell that takes up other values later: an object, or a scope.
    template <typename T, typename... Args>
    [[nodiscard]] std::shared_ptr<T> make(Args&&... args) {
        auto cell = std::make_shared<T>(std::forward<Args>(args)...);
        cell->charge(account_, sizeof(T) + kCellBytes);
        return cell;
    }
    /// An object to be emptied when the rendering ends, and kept until then.
    void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

    [[nodiscard]] Account& account() { return account_; }
    [[nodiscard]] const std::tm& now() const { return now_; }

    /// The template line being rendered, for the message of an error.
    int line = 0;

    /// One level of recursion, while it lives.
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
    /// Of expressions and statements inside each other, macros in macros included: a KiB or two of stack each.
    static constexpr int kMaxDepth = 1000;
    static constexpr std::int64_t kStepsBetween = 4096;  // looks at the cancel flag
    static constexpr std::size_t kBytesPerStep = 64;
    static constexpr std::size_t kCharsPerStep = 4;
    static constexpr std::size_t kCellBytes = 64;  // of the allocator: a cell and a vector or text

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
    std::int64_t look_at_;  // steps left when the cancel flag is looked at again
    int depth_ = 0;
    std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace jinja

}  // namespace slipstream
