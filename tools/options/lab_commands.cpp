#include "tools/options/lab_commands.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tools/options/command.h"

namespace slipstream::tools {

namespace {

constexpr std::array<std::string_view, 8> kLabCommands{"replay",     "views", "drafts", "routes",
                                                       "tokenizers", "ops",   "card",   "random-model"};

// Options that `bench` had for views.
constexpr std::array<std::string_view, 6> kViewOptions{"--views",      "--view-budgets",   "--view-recent",
                                                       "--view-sinks", "--view-half-life", "--view-rows"};

}  // namespace

bool is_lab_command(std::string_view name) {
    return std::ranges::find(kLabCommands, name) != kLabCommands.end();
}

std::string_view lab_command_of(const CommandSpec& command, std::string_view flag) {
    const bool is_view_option = std::ranges::find(kViewOptions, flag) != kViewOptions.end();
    return command.name == "bench" && is_view_option ? "views" : "";
}

std::string where_lab_is(std::string_view what, std::string_view lab_command) {
    return fmt::format(
        "{} is in slipstream-lab, the program for developers and researchers: use 'slipstream-lab {}'; to build it in "
        "a checkout: cmake --preset release -DSLIPSTREAM_LAB=ON && cmake --build build/release --target slipstream-lab",
        what, lab_command);
}

}  // namespace slipstream::tools
