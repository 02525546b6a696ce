// This machine's rates, kept in a file in the folder of the tables. So they hold still: a start whose key (rates_key())
// is in the file measures nothing, and commands with the same options plan the same bytes. Rates that were doubtful,
// since other programs used the machine, are measured again at the next start, and replaced once a measurement is not
// doubtful.
#pragma once

#include <string_view>

#include "tools/engine/measured_rates.h"

namespace slipstream::tools {

struct EngineCallbacks;
struct RatesOptions;

/// Name of the file of kept rates, which is in the folder of the learnt tables.
inline constexpr std::string_view kRatesFile = "rates.txt";

/// Returns the rates for `question`, rounded by steady_rates(): kept ones, or measured ones, which are then kept in the
/// file.
/// Reports a note if they are doubtful, or if they cannot be kept. Two programs may call this at the same time: the
/// file is replaced as a whole, and the second one takes what the first one has kept.
[[nodiscard]] MachineRates machine_rates(const RateQuestion& question, const RatesOptions& options,
                                         const EngineCallbacks& callbacks);

/// Returns `rates` rounded to eighths of an octave (9 %), so that plans do not depend on small differences, and with
/// costs that never fall with the number of tokens: a pass of 1 token is never planned slower than one of 4.
[[nodiscard]] MachineRates steady_rates(MachineRates rates);

}  // namespace slipstream::tools
