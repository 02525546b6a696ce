#include "runtime/formats/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/error.h"

namespace slipstream {

std::string GgufKeys::key(std::string_view suffix) const {
    return fmt::format("{}.{}", prefix_, suffix);
}

std::int64_t GgufKeys::required(std::string_view suffix) const {
    if (const auto value = integer(suffix)) return *value;
    throw FormatError(fmt::format("{}: metadata {} is missing", file_.name(), key(suffix)));
}

std::optional<std::vector<std::int64_t>> GgufKeys::by_layer(std::string_view suffix, std::int64_t n_layers) const {
    const GgufValue* value = find(suffix);
    if (value == nullptr || value->type != GgufValueType::Array) {
        const auto of_all = integer(suffix);
        if (!of_all) return std::nullopt;
        return std::vector<std::int64_t>(static_cast<std::size_t>(n_layers), *of_all);
    }
    auto values = value->integers();
    if (!values || values->empty() || static_cast<std::int64_t>(values->size()) != n_layers)
        throw FormatError(fmt::format("{}: metadata {} is {}; one integer for each of {} layers is needed",
                                      file_.name(), key(suffix), value->to_text(), n_layers));
    return values;
}

std::optional<std::int64_t> GgufKeys::uniform(std::string_view suffix, std::int64_t n_layers) const {
    const auto values = by_layer(suffix, n_layers);
    if (!values) return std::nullopt;
    if (std::ranges::any_of(*values, [&](std::int64_t v) { return v != values->front(); }))
        throw Unsupported(fmt::format("{}: {} differs between layers ({}), which is not served", file_.name(),
                                      key(suffix), find(suffix)->to_text()));
    return values->front();
}

std::vector<bool> GgufKeys::windowed_layers(std::int64_t n_layers, std::int64_t period) const {
    const auto n = static_cast<std::size_t>(n_layers);
    std::vector<bool> windowed(n, true);
    if (const GgufValue* pattern = find("attention.sliding_window_pattern")) {
        if (const auto step = pattern->integer()) {
            period = *step;
        } else {
            const auto flags = pattern->integers();
            if (!flags || flags->size() != n)
                throw FormatError(fmt::format("{}: metadata {} is {}; a flag for each of {} layers is needed",
                                              file_.name(), key("attention.sliding_window_pattern"), pattern->to_text(),
                                              n));
            for (std::size_t i = 0; i < n; ++i) windowed[i] = (*flags)[i] != 0;
            return windowed;
        }
    }
    if (period > 0)
        for (std::size_t i = 0; i < n; ++i)
            windowed[i] = i % static_cast<std::size_t>(period) != static_cast<std::size_t>(period) - 1;
    return windowed;
}

void drop_proposing_layers(const GgufKeys& keys, ModelConfig& config) {
    const std::int64_t n_proposing = keys.integer("nextn_predict_layers").value_or(0);
    if (n_proposing < 0 || n_proposing >= config.n_layers())
        throw FormatError(
            fmt::format("{} = {} of {} layers", keys.key("nextn_predict_layers"), n_proposing, config.n_layers()));
    config.layers.resize(static_cast<std::size_t>(config.n_layers() - n_proposing));
}

void read_gguf_windows(const GgufKeys& keys, std::int64_t period, ModelConfig& config, std::int64_t absent_window) {
    const std::optional<std::int64_t> stored = keys.integer("attention.sliding_window");
    if (stored && (*stored < 0 || (*stored == 0 && period > 0)))
        throw FormatError(
            fmt::format("{}: metadata {} is {}", keys.file().name(), keys.key("attention.sliding_window"), *stored));
    const std::int64_t window = stored.value_or(absent_window);
    if (window == 0) return;
    const std::vector<bool> windowed = keys.windowed_layers(config.n_layers(), period);
    for (std::size_t i = 0; i < windowed.size(); ++i)
        if (windowed[i]) config.layers[i].attention().window = window;
}

}  // namespace slipstream
