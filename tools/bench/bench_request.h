// What a bench was asked for, checked before any model is opened: one request for each value of a sweep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/bench_figures.h"
#include "tools/bench/bench_prompts.h"
#include "tools/bench/bench_view_request.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/draft_options.h"
#include "tools/options/settings.h"
#include "tools/options/template_options.h"

namespace slipstream::tools {

inline constexpr std::int64_t kDefaultPromptTokens = 512;
inline constexpr std::int64_t kDefaultDecodeTokens = 128;
inline constexpr std::int64_t kMaxPassTokens = 4096;  // logits for all of them are kept

struct BenchRequest {
    ComputeOptions compute;
    BenchMode mode = BenchMode::Plain;
    std::int64_t repeat = 5;
    std::optional<std::int64_t> max_tokens;        // but for Passes
    std::optional<std::int64_t> prompt_tokens;     // Plain
    std::optional<std::string> prompt;             // Plain: text that is given
    TemplateSettings chat_template;                // Plain, Prompts: None where the text is raw anyway
    std::vector<std::int64_t> passes;              // Passes
    std::optional<std::int64_t> depth;             // Passes, Views
    bool stages = false;                           // Passes: by stage, too
    SamplerOptions sampling{.temperature = 0.0};   // but for Passes
    std::vector<DraftSettings> drafts;             // Plain, Prompts: a column each beside plain decoding; Passes: one
    bool keeps_tables = false;                     // Prompts: what was learnt stays from text to text
    std::string prompts_file;                      // Prompts
    std::vector<BenchPrompt> prompts;              // Prompts
    ViewsRequest views;                            // Views
    std::optional<std::filesystem::path> session;  // Plain, Views: a text that is there with its KV
};

/// Throws UsageError where an option is malformed or cannot act, IoError and FormatError of the prompts' file.
[[nodiscard]] BenchRequest bench_request(const CommandContext& context);

/// The settings of one value of a sweep.
struct SweepPoint {
    std::optional<std::pair<std::string, std::string>> swept;  // option and value; nothing where nothing is swept
    Settings settings;
};
/// All values of --sweep, in order; the settings as they are where it is not given. Throws UsageError.
[[nodiscard]] std::vector<SweepPoint> sweep_points(const Settings& settings);

/// "1,2,4" -> {1, 2, 4}, each from 1 to kMaxPassTokens; `where` is for messages. Throws UsageError.
[[nodiscard]] std::vector<std::int64_t> parse_passes(std::string_view list, std::string_view where);

}  // namespace slipstream::tools
