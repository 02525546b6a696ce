// The request of a benchmark, checked before any model is opened: one request for each value of a sweep.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "offload/trace_file.h"
#include "tools/bench/bench_figures.h"
#include "tools/bench/bench_prompts.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/draft_options.h"
#include "tools/options/settings.h"
#include "tools/options/template_options.h"

namespace slipstream::tools {

inline constexpr std::int64_t kDefaultPromptTokens = 512;
inline constexpr std::int64_t kDefaultDecodeTokens = 128;
inline constexpr std::int64_t kMaxPassTokens = 4096;  // a pass keeps logits for all of its tokens

struct BenchRequest {
    ComputeOptions compute;
    BenchMode mode = BenchMode::Plain;
    std::int64_t repeat = 5;
    std::optional<std::int64_t> max_tokens;       // Plain, Prompts
    std::optional<std::int64_t> prompt_tokens;    // Plain
    std::optional<std::string> prompt;            // Plain: text of --prompt or --file
    TemplateSettings chat_template;               // Plain, Prompts: choice None if the text stays raw
    std::vector<std::int64_t> passes;             // Passes
    std::optional<std::int64_t> depth;            // Passes
    bool stages = false;                          // Passes: also timed stage by stage
    SamplerOptions sampling{.temperature = 0.0};  // Plain, Prompts
    std::vector<DraftSettings> drafts;  // Plain, Prompts: each is a column beside plain decoding; Passes: exactly one
    bool keeps_tables = false;          // Plain, Prompts: drafters keep what they have learnt from text to text
    std::string prompts_file;           // Prompts
    std::vector<BenchPrompt> prompts;   // Prompts
    std::optional<std::filesystem::path> session;  // Plain: its text and KV are used
    std::shared_ptr<TraceFile> trace;              // null: no run is recorded
};

/// Reads and checks the options. Throws UsageError if an option is malformed or has no effect in this mode, and IoError
/// and FormatError for the prompts' file.
[[nodiscard]] BenchRequest bench_request(const CommandContext& context);

/// The settings for one value of --sweep.
struct SweepPoint {
    std::optional<std::pair<std::string, std::string>> swept;  // option and value; none: no --sweep
    Settings settings;
};
/// Returns a point for each value of --sweep, in order; without --sweep one point with the unchanged settings. Throws
/// UsageError.
[[nodiscard]] std::vector<SweepPoint> sweep_points(const Settings& settings);

/// Parses "1,2,4" into {1, 2, 4}; each number is 1 to kMaxPassTokens. `where` names the option in messages. Throws
/// UsageError.
[[nodiscard]] std::vector<std::int64_t> parse_passes(std::string_view list, std::string_view where);

}  // namespace slipstream::tools
