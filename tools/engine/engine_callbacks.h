// What an engine reports to its user, and how it is cancelled. The engine knows neither a terminal nor a command line:
// a command shows these lines and progress bars (cli/console_callbacks.h), a server may log them.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace slipstream::tools {

/// Reports the progress of some work: `done` of `total`, and `figures`, the same in words ("1.2 of 4.0 GiB"). The work
/// has ended when this function is destroyed.
using WorkProgress = std::function<void(double done, double total, std::string_view figures)>;

/// What an engine reports to its user, and how it is cancelled. Each member may be empty (null).
struct EngineCallbacks {
    /// Reports what the user should know although nothing has failed.
    std::function<void(std::string_view line)> on_note{};
    /// Reports the reason of a decision.
    std::function<void(std::string_view line)> on_detail{};
    /// Reports the value chosen for an option; `otherwise` says where it came from if the user did not set the option.
    std::function<void(std::string_view option, std::string_view value, std::string_view otherwise)> on_choice{};
    /// Announces work that may take long; returns the function to report its progress to, or an empty one.
    std::function<WorkProgress(std::string work)> on_work{};
    /// If it turns true, the running work is abandoned and throws Interrupted.
    const std::atomic<bool>* cancel = nullptr;

    void note(std::string_view line) const;
    void detail(std::string_view line) const;
    void choice(std::string_view option, std::string_view value, std::string_view otherwise) const;
    /// Calls on_work. The returned function is never empty; it throws Interrupted after cancellation.
    [[nodiscard]] WorkProgress work(std::string what) const;
    void throw_if_cancelled() const;
};

}  // namespace slipstream::tools
