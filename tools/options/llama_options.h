// Options of llama.cpp's programs that have no counterpart here: those that ask for what happens anyway are taken with
// a note, so that scripts go on; the others are answered by an error that says what to use instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace slipstream::tools {

struct CommandSpec;

/// What becomes of an option of llama.cpp.
struct LlamaOption {
    bool takes_next = false;  // the argument after the option is its value
    std::string note;         // for the user
    std::string devices;      // the value of --devices with the same effect; empty: there is none
};

/// Returns what becomes of the option `name` on the command line of `command`; nothing if it is no such option of
/// llama.cpp. `attached` is the value after '=', `next` the argument after the option; null: there is none. Throws
/// UsageError if the option, or its value, asks for what does not exist here.
[[nodiscard]] std::optional<LlamaOption> llama_option(const CommandSpec& command, std::string_view name,
                                                      const std::string* attached, const std::string* next);

}  // namespace slipstream::tools
