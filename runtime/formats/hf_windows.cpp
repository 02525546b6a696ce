#include "runtime/formats/hf_windows.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

std::vector<std::string> read_layer_types(const JsonFields& fields, std::int64_t n_layers) {
    const auto* types = fields.find("layer_types");
    if (types == nullptr || !types->is_array() || std::ssize(*types) != n_layers)
        fields.fail("layer_types", fmt::format("is not a list of {} layers", n_layers));
    std::vector<std::string> texts;
    for (const auto& type : *types) texts.push_back(type.is_string() ? type.get<std::string>() : "?");
    return texts;
}

void set_windows(const JsonFields& fields, std::optional<std::int64_t> window, ModelConfig& config) {
    if (!window) return;
    if (*window < 1) fields.fail("sliding_window", fmt::format("is {}", *window));
    for (LayerConfig& layer : config.layers) layer.attention().window = *window;
}

void set_windows_by_type(const JsonFields& fields, std::optional<std::int64_t> window, ModelConfig& config) {
    set_windows(fields, window, config);
    if (fields.find("layer_types") == nullptr && !window) return;
    const std::vector<std::string> types = read_layer_types(fields, config.n_layers());
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        const std::string& text = types[i];
        if (text != "sliding_attention" && text != "full_attention")
            throw Unsupported(
                fmt::format("{}: layer type \"{}\" is not served (served: full_attention, sliding_attention)",
                            fields.name(), printable(text)));
        if (text == "full_attention") config.layers[i].attention().window = 0;
        if (text == "sliding_attention" && !window) fields.fail("sliding_window", "is null, but a layer has one");
    }
}

void set_periodic_windows(ModelConfig& config, std::int64_t window, std::int64_t period) {
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer)
        config.layers[layer].attention().window = (layer + 1) % period == 0 ? 0 : window;
}

}  // namespace slipstream
