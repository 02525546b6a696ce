#include "draft/tree/log_odds.h"

#include <cmath>

namespace slipstream::draft::log_odds_detail {

const std::array<float, kSteps + 2> kLogistic = [] {
    std::array<float, kSteps + 2> table{};
    for (std::size_t i = 0; i < table.size(); ++i)
        table[i] = 1.0F / (1.0F + std::exp(kMaxLogOdds - static_cast<float>(i) / kStepsPerUnit));
    return table;
}();

}  // namespace slipstream::draft::log_odds_detail
