#include "runtime/formats/experts_fields.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/gguf_keys.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

ExpertsConfig read_hf_experts(const JsonFields& fields, const HfExpertFields& names) {
    const auto required = [&](const char* key, std::int64_t absent) {
        return absent == 0 ? fields.required(key) : fields.integer(key).value_or(absent);
    };
    const bool by_other_name = names.other_count != nullptr && fields.find(names.count) == nullptr &&
                               fields.find(names.other_count) != nullptr;
    const char* count = by_other_name ? names.other_count : names.count;
    const ExpertsConfig experts{.n_experts = required(count, names.absent_count),
                                .n_chosen = required(names.chosen, names.absent_chosen),
                                .d_ff = required(names.d_ff, names.absent_d_ff)};
    if (experts.n_experts < 1) fields.fail(count, fmt::format("is {}; a mixture has experts", experts.n_experts));
    return experts;
}

std::vector<bool> read_dense_layers(const JsonFields& fields, std::int64_t n_layers) {
    const std::int64_t step = fields.integer("decoder_sparse_step").value_or(1);
    if (step < 1) fields.fail("decoder_sparse_step", fmt::format("is {}", step));
    const auto listed = fields.numbers("mlp_only_layers");
    std::vector<bool> is_dense;
    for (std::int64_t i = 0; i < n_layers; ++i) {
        const bool is_listed = listed && std::ranges::find(*listed, static_cast<double>(i)) != listed->end();
        is_dense.push_back(is_listed || (i + 1) % step != 0);
    }
    if (std::ranges::find(is_dense, false) == is_dense.end())
        fields.fail("mlp_only_layers", "leaves no layer with experts");
    return is_dense;
}

ExpertsConfig read_gguf_experts(const GgufKeys& keys, GgufGating gating, std::optional<std::int64_t> absent_d_ff) {
    if (const auto found = keys.integer("expert_gating_func"); found && *found != static_cast<std::int64_t>(gating))
        throw Unsupported(fmt::format("{}: {} = {} is not served for this family", keys.file().name(),
                                      keys.key("expert_gating_func"), *found));
    const auto d_ff = keys.integer("expert_feed_forward_length");
    const ExpertsConfig experts{
        .n_experts = keys.required("expert_count"),
        .n_chosen = keys.required("expert_used_count"),
        .d_ff = d_ff || !absent_d_ff ? keys.required("expert_feed_forward_length") : *absent_d_ff};
    if (experts.n_experts < 1)
        throw FormatError(fmt::format("{}: {} = {}; a mixture has experts", keys.file().name(),
                                      keys.key("expert_count"), experts.n_experts));
    if (const auto groups = keys.integer("expert_group_count"); groups && *groups > 1)
        throw Unsupported(fmt::format("{}: experts that are chosen by groups ({} = {}) are not served",
                                      keys.file().name(), keys.key("expert_group_count"), *groups));
    return experts;
}

}  // namespace slipstream
