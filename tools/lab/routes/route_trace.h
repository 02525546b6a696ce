// Traces of routes: the experts that the tokens of a text chose, in each layer that has experts. Format: README.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/tables/table_file.h"

namespace slipstream::tools {

/// The routes of one layer.
struct RoutedLayer {
    std::int64_t layer = 0;  // of the model
    std::int64_t n_experts = 0;
    std::int64_t n_chosen = 0;
    std::vector<std::uint16_t> ids{};  // [n_tokens, n_chosen], ascending for each token

    [[nodiscard]] std::span<const std::uint16_t> chosen(std::int64_t token) const {
        return std::span(ids).subspan(static_cast<std::size_t>(token * n_chosen), static_cast<std::size_t>(n_chosen));
    }
    friend bool operator==(const RoutedLayer&, const RoutedLayer&) = default;
};

struct RouteTrace {
    std::string model;                // its name, for people
    std::int64_t n_tokens = 0;        // that follow each other; at least 1
    std::vector<RoutedLayer> layers;  // those with experts, ascending; at least 1
    std::int64_t n_left_out = 0;      // tokens that a public trace has in some layers only; not stored
    friend bool operator==(const RouteTrace&, const RouteTrace&) = default;
};

/// Writes the bytes of the file of a trace to `sink`, in order.
void write_routes(const RouteTrace& trace, const draft::ByteSink& sink);

/// Returns the trace in `bytes`, the contents of the file `name`: one of write_routes(), or a public one
/// (parse_public_routes()). Throws FormatError if it is neither, or damaged.
[[nodiscard]] RouteTrace parse_routes(std::string_view bytes, const std::string& name);

inline constexpr std::string_view kPublicRoutes = "# route_trace v1";

/// Returns the trace in `text`, which begins with kPublicRoutes: the CSV file that BigMoeOnEdge writes for
/// --route-trace. Tokens are in the order of turn, phase and step. Those without rows in some layers are left out: of a
/// prompt, llama.cpp computes the last layer for its last token alone. Throws FormatError.
[[nodiscard]] RouteTrace parse_public_routes(std::string_view text, const std::string& name);

}  // namespace slipstream::tools
