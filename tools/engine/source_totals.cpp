#include "tools/engine/statistics.h"

#include <algorithm>

namespace slipstream::tools {

double SourceTotal::acceptance() const {
    return offered > 0 ? static_cast<double>(accepted) / static_cast<double>(offered) : 0.0;
}

void SourceTotals::add(const std::vector<draft::SourceFigures>& before,
                       const std::vector<draft::SourceFigures>& after) {
    for (const draft::SourceFigures& figures : after) {
        auto total = std::find_if(totals_.begin(), totals_.end(),
                                  [&](const SourceTotal& known) { return known.name == figures.name; });
        if (total == totals_.end()) total = totals_.insert(total, SourceTotal{.name = std::string(figures.name)});
        draft::SourceFigures start;
        for (const draft::SourceFigures& earlier : before)
            if (earlier.name == figures.name) start = earlier;
        total->offered += figures.offered - start.offered;
        total->accepted += figures.accepted - start.accepted;
        total->parents += figures.parents - start.parents;
        total->seconds += figures.seconds - start.seconds;
        if (figures.passes) total->passes = total->passes.value_or(0) + *figures.passes - start.passes.value_or(0);
    }
}

JsonObject SourceTotals::json() const {
    JsonObject sources;
    for (const SourceTotal& total : totals_) {
        JsonObject figures;
        figures.integer("offered", total.offered).integer("accepted", total.accepted).real("seconds", total.seconds);
        sources.object(total.name, figures);
    }
    return sources;
}

std::vector<JsonObject> SourceTotals::levels() const {
    std::vector<JsonObject> levels;
    for (const SourceTotal& total : totals_) {
        if (!total.passes) continue;
        JsonObject& level = levels.emplace_back();
        level.text("name", total.name).integer("passes", *total.passes);
        level.integer("offered", total.offered).integer("accepted", total.accepted);
    }
    return levels;
}

}  // namespace slipstream::tools
