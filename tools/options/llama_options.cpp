#include "tools/options/llama_options.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"

namespace slipstream::tools {

namespace {

// What follows the name of an option.
enum class Follows : std::uint8_t {
    Nothing,
    Value,
    Perhaps,  // a value, or nothing: it is a value if it is among those that are taken
};

// An option of llama.cpp that asks for what happens here anyway.
struct AlreadySo {
    std::string_view names;  // separated by commas
    Follows follows = Follows::Nothing;
    std::string_view taken;     // values that ask for what happens anyway, separated by commas
    std::string_view commands;  // commands that take it, separated by commas; empty: each that computes
    std::string_view note;
    std::string_view otherwise;  // error for other values, and for other commands that compute
};
constexpr std::string_view kPlacement = "--device-memory decides what is resident; leave it out";
constexpr std::array kAlreadySo{
    AlreadySo{"-fa,--flash-attn", Follows::Perhaps, "on,auto,1,true,enabled", "",
              "there is one attention here, which needs no switch",
              "there is one attention here, which cannot be switched off; leave it out"},
    AlreadySo{"-st,--single-turn", Follows::Nothing, "", "generate", "'generate' answers once and ends",
              "'generate' answers once and ends, 'chat' goes on; leave it out"},
    AlreadySo{"--mlock", Follows::Nothing, "", "",
              "weights that stream are in pinned memory; the others are not locked", ""},
    AlreadySo{"--no-mmap", Follows::Nothing, "", "", "weights are always read into memory of their own", ""},
    AlreadySo{"--jinja", Follows::Nothing, "", "", "chat templates are always run as they are written", ""},
    AlreadySo{"-np,--parallel", Follows::Value, "1,-1", "serve", "one text is computed at a time",
              "one text is computed at a time, the others wait; leave it out"},
    AlreadySo{"--metrics", Follows::Nothing, "", "serve", "/metrics is always there", ""},
    AlreadySo{"--slots", Follows::Nothing, "", "serve", "/slots is always there", ""},
};
constexpr std::string_view kLayersOnGpu = "-ngl,--n-gpu-layers,--gpu-layers";

// An option without a counterpart; `answer` goes into the error.
struct Answered {
    std::string_view names;
    std::string_view answer;
};
constexpr std::string_view kSeveralGpus =
    "--devices, --split and --shares say how several devices share a model; leave it out";
constexpr std::array kAnswered{
    Answered{"-ot,--override-tensor", kPlacement},
    Answered{"-cmoe,--cpu-moe,-ncmoe,--n-cpu-moe",
             "--device-memory decides which experts are on the device, --experts what happens to the others; leave it "
             "out"},
    Answered{"-ts,--tensor-split,-sm,--split-mode", kSeveralGpus},
    Answered{"-b,-ub,--batch-size,--ubatch-size", "passes are as large as pays (--budget bounds them); leave it out"},
    Answered{"--grammar,--grammar-file,-j,--json-schema,--json-schema-file",
             "answers are not limited by a grammar or a schema; leave it out"},
    Answered{"--api-key",
             "an argument shows in the list of processes; put the key into a file for --api-key-file, or into "
             "the variable SLIPSTREAM_API_KEY"},
};

bool is_among(std::string_view words, std::string_view word) {
    const auto parts = split_list(words);
    return std::ranges::find(parts, word) != parts.end();
}

// Returns whether the command computes with a model: only such commands take llama.cpp's options.
bool computes(const CommandSpec& command) {
    return std::ranges::any_of(command.options, [](const OptionSpec& option) { return option.name == "devices"; });
}

[[noreturn]] void refuse(std::string_view name, const std::string* value, std::string_view answer) {
    throw UsageError(value != nullptr ? fmt::format("{} {}: {}", name, *value, answer)
                                      : fmt::format("{}: {}", name, answer));
}

// Returns what becomes of -ngl: 0 computes on the CPU; 99 and more, -1, all and auto compute as much on the GPU as its
// memory allows. Throws UsageError for other values.
LlamaOption layers_on_gpu(std::string_view name, const std::string* attached, const std::string* next) {
    const std::string* value = attached != nullptr ? attached : next;
    if (value == nullptr) refuse(name, nullptr, kPlacement);
    LlamaOption option{.takes_next = attached == nullptr, .note = {}, .devices = {}};
    const bool is_number = !value->empty() && value->find_first_not_of("0123456789") == std::string::npos;
    const bool is_all = is_among("all,auto,-1", *value) || (is_number && (value->size() > 2 || *value == "99"));
    if (is_number && value->find_first_not_of('0') == std::string::npos) {
        option.devices = "cpu";
        option.note = fmt::format("{} {}: that is --devices cpu", name, *value);
    } else if (is_all) {
        option.note = fmt::format(
            "{} {}: all layers are computed on the device anyway; what exceeds --device-memory streams", name, *value);
    } else {
        refuse(name, value,
               "--device-memory decides what is resident, not a number of layers; leave it out (99: all "
               "layers, 0: --devices cpu)");
    }
    return option;
}

}  // namespace

std::optional<LlamaOption> llama_option(const CommandSpec& command, std::string_view name, const std::string* attached,
                                        const std::string* next) {
    if (computes(command)) {
        if (is_among(kLayersOnGpu, name)) return layers_on_gpu(name, attached, next);
        for (const AlreadySo& entry : kAlreadySo) {
            if (!is_among(entry.names, name)) continue;
            const bool is_elsewhere = !entry.commands.empty() && !is_among(entry.commands, command.name);
            if (is_elsewhere && (entry.otherwise.empty() || entry.follows == Follows::Value)) return std::nullopt;
            if (is_elsewhere) refuse(name, nullptr, entry.otherwise);
            if (entry.follows == Follows::Nothing && attached != nullptr)
                throw UsageError(fmt::format("{} takes no value, found '{}'", name, *attached));
            LlamaOption option{.takes_next = false, .note = fmt::format("{}: {}", name, entry.note), .devices = {}};
            if (entry.follows == Follows::Nothing) return option;
            const std::string* value = attached != nullptr ? attached : next;
            const bool is_taken = value != nullptr && is_among(entry.taken, *value);
            option.takes_next = is_taken && attached == nullptr;
            if (is_taken || (entry.follows == Follows::Perhaps && attached == nullptr &&
                             (value == nullptr || !is_among("off,0,false,disabled", *value))))
                return option;
            refuse(name, value, entry.otherwise);
        }
    }
    for (const Answered& entry : kAnswered)
        if (is_among(entry.names, name)) refuse(name, nullptr, entry.answer);
    return std::nullopt;
}

}  // namespace slipstream::tools
