// The experts that the tokens of passes chose, by layer and scratch row of the KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cache/kv_nodes.h"
#include "runtime/model/model_config.h"

namespace slipstream {

class ExpertChoices {
public:
    /// Takes memory for the layers of `config` that have experts and for the scratch rows [0, max_nodes).
    ExpertChoices(const ModelConfig& config, std::int64_t max_nodes);

    /// Notes what the tokens at `nodes` chose in a layer with experts: `chosen` [nodes.size(), n_chosen].
    void note(std::int64_t layer, std::span<const NodeId> nodes, const std::int32_t* chosen);

    /// Forgets what an earlier token at `node` chose, in all layers: a new token takes its row.
    void forget(NodeId node);

    /// Returns [n_chosen]: what the token at `node` chose in a layer, in the order in which it was noted; empty if the
    /// layer has no experts, or did not compute the token (a prompt by layers may go on from kept hidden states).
    [[nodiscard]] std::span<const std::uint16_t> of(std::int64_t layer, NodeId node) const;

private:
    struct Layer {
        std::int64_t n_chosen = 0;
        std::vector<std::uint16_t> ids;  // [max_nodes, n_chosen]
    };
    std::vector<Layer> layers_;
};

}  // namespace slipstream
