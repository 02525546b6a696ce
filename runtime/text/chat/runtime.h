// What one rendering has at hand: its budget (steps, bytes, depth), the line it is at, the time, and the makers of
// values, which charge the budget. Objects that change may come to refer to each other in circles or in long chains (a
// namespace that holds itself), so the runtime keeps those alive and empties them all when it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/chat/limits.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/text_builder.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime {
public:
    Runtime(const TemplateLimits& limits, const std::tm& now)
        : limits_(limits), now_(now), steps_left_(limits.max_steps), look_at_(limits.max_steps - kStepsBetween) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
    ~Runtime();

    /// Throws TemplateError where the budget is used up.
    void spend(std::int64_t steps) {
        if (steps > steps_left_) out_of_steps();
        steps_left_ -= steps;
        if (steps_left_ <= look_at_) look_at_cancel();
    }
    /// Pays for a walk over all of a value.
    void spend_for(const Value& value) { spend(value.weight()); }

    /// Values made while rendering; they throw TemplateError past a limit.
    [[nodiscard]] Value text(std::string content);
    [[nodiscard]] Value markup(std::string content);
    [[nodiscard]] Value text(std::string content, const Text& like);  // marked as HTML if `like` is
    [[nodiscard]] Value list(std::vector<Value> items);
    [[nodiscard]] Value tuple(std::vector<Value> items);
    [[nodiscard]] Value dict(Dict dict);
    [[nodiscard]] TextBuilder builder() const { return TextBuilder(limits_.max_text_bytes); }
    /// An object that holds what it was made with.
    template <typename T, typename... Args>
    [[nodiscard]] std::shared_ptr<T> make(Args&&... args) {
        allocate(sizeof(T));
        auto object = std::make_shared<T>(std::forward<Args>(args)...);
        check_depth(object->depth());
        return object;
    }
    /// An object that takes up other values later; kept until the rendering ends, or forget().
    template <typename T, typename... Args>
    [[nodiscard]] std::shared_ptr<T> make_mutable(Args&&... args) {
        auto object = make<T>(std::forward<Args>(args)...);
        mutable_objects_.push_back(object);
        return object;
    }
    /// Drops the newest mutable object where nobody but the caller holds it.
    void forget(const std::shared_ptr<Object>& object);

    [[nodiscard]] const TemplateLimits& limits() const { return limits_; }
    [[nodiscard]] const std::tm& now() const { return now_; }

    /// The template line being evaluated, for the message of an error.
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
    /// Of expressions and statements inside each other, macros in macros included. At the most a few KiB of stack each.
    static constexpr int kMaxDepth = 1000;

    static constexpr std::int64_t kStepsBetween = 4096;  // looks at the cancel flag

    void allocate(std::size_t bytes);
    void check_text(const std::string& content);
    static void check_depth(int depth);
    [[noreturn]] void out_of_steps() const;
    void look_at_cancel();
    [[noreturn]] void too_deep() const;

    const TemplateLimits limits_;
    const std::tm now_;
    std::int64_t steps_left_;
    std::int64_t look_at_;  // steps left when the cancel flag is looked at again
    std::size_t allocated_bytes_ = 0;
    int depth_ = 0;
    std::vector<std::shared_ptr<Object>> mutable_objects_;
};

}  // namespace slipstream::jinja
