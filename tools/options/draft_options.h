// Options of speculative decoding, the same for every command that generates: draft sources, shape of the tree, its
// budget, and the rule by which the target verifies. They are checked here, before a model is opened; the engine makes
// a drafter from them.
//
// An option without effect is a UsageError if it is on the command line. Environment and configuration file serve many
// commands, so there it is ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "tools/options/draft_sources.h"

namespace slipstream::tools {

struct DraftSettings;
struct OptionSpec;
class Settings;

/// Largest number of nodes of a tree, node 0 included, that an option may request.
inline constexpr std::int64_t kMaxBudget = 4096;

/// Declares --draft, --draft-model, --budget, --tree and the other options of drafting. For DraftPlace::OnRecording,
/// those of a draft model, a KV view, learnt tables and verification are left out.
[[nodiscard]] std::vector<OptionSpec> draft_option_specs(DraftPlace place);

/// Which values count if --draft is given several times.
enum class DraftLists : std::uint8_t { Last, Every };

/// Returns the settings of each list of sources that counts; `fallback` is the list if --draft is not given. Throws
/// UsageError if a value is malformed or names what this version does not have, or if an option on the command line has
/// no effect with any of the lists. Lists that are all `none` accept every option.
[[nodiscard]] std::vector<DraftSettings> draft_settings(const Settings& settings, DraftPlace place, DraftLists use,
                                                        std::string_view fallback);

/// Returns the folder of learnt tables: --tables, else slipstream/tables in XDG_CACHE_HOME or ~/.cache. Returns nothing
/// if --tables is `off`, or if the environment has neither.
[[nodiscard]] std::optional<std::filesystem::path> tables_folder(const Settings& settings);

/// Parses a value of --cacheback such as "ll=1,fl=3"; settings that the list does not name keep their defaults. `where`
/// names the option in errors. Throws UsageError.
[[nodiscard]] draft::CachebackOptions parse_cacheback(std::string_view list, std::string_view where);

}  // namespace slipstream::tools
