// What one rendering has at hand: its budget (steps, bytes, depth), the line it is at, the time, and the makers of
// values, which charge the budget. Objects that change may come to refer to each other in circles (a namespace that
// holds itself), so the runtime keeps those alive and empties them all when it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/limits.h"
#include "runtime/text/chat/object.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

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

    /// Values made while rendering; they throw TemplateError past a limit.
    [[nodiscard]] Value text(MarkedText content);
    [[nodiscard]] Value text(std::string content) { return text(MarkedText{std::move(content), {}}); }
    [[nodiscard]] Value text(TextBuilder& out) { return text(out.take()); }
    /// A part of `text`, with its marks.
    [[nodiscard]] Value part(const Text& text, TextSpan span);
    [[nodiscard]] Value sequence(Kind kind, std::vector<Value> items);
    [[nodiscard]] Value list(std::vector<Value> items) { return sequence(Kind::List, std::move(items)); }
    [[nodiscard]] Value dict(Dict dict);
    [[nodiscard]] Value undefined(UndefinedInfo info);
    [[nodiscard]] TextBuilder builder() { return TextBuilder(account_, limits_.max_text_bytes); }
    /// Throws where a list of so many items would pass the limit.
    void check_items(std::size_t n_items) const;
    /// A cell that takes up other values later, or a scope; `bytes` besides its own.
    template <typename T, typename... Args>
    [[nodiscard]] Ref<T> make(Args&&... args) {
        Ref<T> cell(new T(std::forward<Args>(args)...));
        cell->charge(account_, sizeof(T) + kCellBytes);
        return cell;
    }
    template <typename T, typename... Args>
    [[nodiscard]] Value make_object(Args&&... args) {
        return {Kind::Object, make<T>(std::forward<Args>(args)...).get()};
    }
    /// An object to be emptied when the rendering ends, and kept until then.
    void keep(Object& object) { kept_.emplace_back(&object); }
    [[nodiscard]] Account& account() { return account_; }

    [[nodiscard]] std::size_t max_text_bytes() const { return limits_.max_text_bytes; }
    [[nodiscard]] const std::tm& now() const { return now_; }

    /// The template line being rendered, for the message of an error.
    int line = 0;

    /// One level of recursion, while it lives.
    class Level {
    public:
        explicit Level(Runtime& runtime) : runtime_(runtime) {
            if (++runtime_.depth_ > kMaxDepth) runtime_.too_deep();
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
    static constexpr std::size_t kCellBytes = 32;  // of the allocator, a cell or a vector

    [[noreturn]] void out_of_steps() const;
    void look_at_cancel();
    [[noreturn]] static void too_deep();

    const TemplateLimits limits_;
    const std::tm now_;
    Account account_;
    std::int64_t steps_left_;
    std::int64_t look_at_;  // steps left when the cancel flag is looked at again
    int depth_ = 0;
    std::vector<Ref<Object>> kept_;
};

}  // namespace slipstream::jinja
