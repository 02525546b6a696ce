#include "tools/plan/assumed_rates.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "runtime/plan/model_plan.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kLeastView = 512;
constexpr std::int64_t kMostView = 1 << 20;

double number_of(const Setting& setting, std::string_view text, double least, double most) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most))
        throw UsageError(
            fmt::format("{}: a number from {} to {} expected, found '{}'", setting.where, least, most, text));
    return value;
}

}  // namespace

std::optional<ViewNeeds> Assumptions::view(std::int64_t max_nodes) const {
    if (draft_seconds) return std::nullopt;
    return ViewNeeds{.options = view_options(), .max_nodes = max_nodes};
}

AssumedValues assumed_setting(const Settings& settings) {
    const Setting* setting = settings.find("assume");
    if (setting == nullptr) return {};
    AssumedValues values;
    Assumptions assumed;
    const Setting* view_type = settings.has("view-type") ? settings.find("view-type") : nullptr;
    if (view_type != nullptr && view_type->values.back() == view_type_name(ViewType::Q4))
        assumed.view_type = ViewType::Q4;
    bool has_drafter = false;
    bool has_acceptance = false;
    for (const std::string_view part : split_list(setting->values.back())) {
        const std::size_t sign = part.find('=');
        const std::string_view name = part.substr(0, sign);
        const std::string_view value = sign == std::string_view::npos ? "" : part.substr(sign + 1);
        if (name == "hits") {
            values.hits = number_of(*setting, value, 0.0, 1.0);
            continue;
        }
        has_drafter = true;
        if (name == "acceptance") {
            assumed.acceptance = number_of(*setting, value, 0.0, 0.9999);
            has_acceptance = true;
        } else if (name == "hidden") {
            assumed.hidden = number_of(*setting, value, 0.0, 1.0);
        } else if (name == "draft") {
            assumed.draft_seconds = number_of(*setting, value, 0.0, 100.0);
        } else if (name == "view") {
            assumed.view_tokens = static_cast<std::int64_t>(number_of(*setting, value, kLeastView, kMostView));
        } else {
            throw UsageError(fmt::format("{}: acceptance=, hidden=, draft=, view= or hits= expected, found '{}'",
                                         setting->where, part));
        }
    }
    if (!has_drafter) return values;
    if (!has_acceptance)
        throw UsageError(fmt::format(
            "{}: the acceptance rate of draft tokens is missing; give for example acceptance=.95", setting->where));
    values.drafter = assumed;
    return values;
}

AssumedRate best_chain(const Assumptions& assumed, double draft_seconds, std::int64_t most_nodes,
                       const std::function<double(std::int64_t)>& pass_seconds) {
    AssumedRate best;
    for (std::int64_t n = 0; n < most_nodes; n = n < 16 ? n + 1 : n + n / 8) {
        AssumedRate rate{.assumed = assumed, .draft_seconds = draft_seconds, .n_guesses = n};
        rate.tokens_per_pass =
            (1.0 - std::pow(assumed.acceptance, static_cast<double>(n + 1))) / (1.0 - assumed.acceptance);
        rate.pass_seconds = pass_seconds(n + 1);
        rate.seconds = rate.pass_seconds + (1.0 - assumed.hidden) * static_cast<double>(n) * draft_seconds;
        if (n == 0 || rate.seconds_per_token() < best.seconds_per_token()) best = rate;
    }
    return best;
}

}  // namespace slipstream::tools
