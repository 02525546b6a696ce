// What an engine tells whoever runs it, and how it is stopped. So it knows neither a terminal nor a command line: a
// command shows these lines and bars (cli/console_callbacks.h), a server may log them.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace slipstream::tools {

/// How far some work is: `done` of `total`, `figures` the same in words ("1.2 of 4.0 GiB"). Once it is dropped the work
/// is over.
using WorkProgress = std::function<void(double done, double total, std::string_view figures)>;

/// All may be left out.
struct EngineCallbacks {
    /// What a user should know though all is well.
    std::function<void(std::string_view line)> on_note{};
    /// What explains a decision.
    std::function<void(std::string_view line)> on_detail{};
    /// The value that an option comes to; `otherwise` names its source where nobody gave the option.
    std::function<void(std::string_view option, std::string_view value, std::string_view otherwise)> on_choice{};
    /// Work begins that may take long.
    std::function<WorkProgress(std::string work)> on_work{};
    /// Turns true: what is going on is given up, with Interrupted.
    const std::atomic<bool>* cancel = nullptr;

    void note(std::string_view line) const;
    void detail(std::string_view line) const;
    void choice(std::string_view option, std::string_view value, std::string_view otherwise) const;
    /// Never empty; calls of it throw Interrupted once this is cancelled.
    [[nodiscard]] WorkProgress work(std::string what) const;
    void throw_if_cancelled() const;
};

}  // namespace slipstream::tools
