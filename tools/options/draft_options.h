// Options about guessing, the same for every command that generates: which sources, in which tree, under which budget,
// and how the target checks them. Read and checked here, before anything is opened; the engine makes a drafter of
// them.
//
// An option that cannot act is a usage error where it stands on the command line (environment and configuration file
// serve many commands, so there it is passed over).
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

/// Most nodes of a pass that may be asked for.
inline constexpr std::int64_t kMaxBudget = 4096;

/// --draft, --draft-model, --budget, --tree and all that go with them. A command on recordings has no draft model and
/// no verification.
[[nodiscard]] std::vector<OptionSpec> draft_option_specs(DraftPlace place);

/// Of several --draft: which count.
enum class DraftLists : std::uint8_t { Last, Every };

/// One for each --draft that counts, `fallback` standing for none given. Throws UsageError where a value is malformed,
/// names what this version does not have, or an option cannot act for any of them.
[[nodiscard]] std::vector<DraftSettings> draft_settings(const Settings& settings, DraftPlace place, DraftLists use,
                                                        std::string_view fallback);

/// The folder of learnt tables: --tables, else slipstream/tables in the user's cache; nothing for `off`, or where the
/// user has no cache folder.
[[nodiscard]] std::optional<std::filesystem::path> tables_folder(const Settings& settings);

/// "ll=1,fl=3" -> the built-in settings with these changed; `where` is for messages. Throws UsageError.
[[nodiscard]] draft::CachebackOptions parse_cacheback(std::string_view list, std::string_view where);

}  // namespace slipstream::tools
