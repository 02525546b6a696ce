// Traces of BigMoeOnEdge (github.com/Helldez/BigMoeOnEdge, docs/bench-data/2026-07-15-route-trace): a CSV file, a row
// for each expert of each token and layer. Numbers of the model come first, in lines of comments:
//
//   # route_trace v1
//   # model=/models/Qwen3-30B-A3B-Q4_K_M.gguf arch=qwen3moe n_layer=48 n_expert=128 n_expert_used=6
//   # layer=0 expert_bytes=3059712 dense_bytes=11953152                      (a line for each layer)
//   turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
//   0,0,0,0,0,49,0.221297,0,3059712
//
// Phase: 0 prompt, 1 decoding. Step: position of the token. Slot: rank of the expert among those of the token.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/lab/routes/route_trace.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kColumns = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes";
constexpr std::int64_t kMost = 1 << 16;         // of experts and layers
constexpr std::int64_t kMostSteps = 1LL << 31;  // and turns

struct Row {
    std::array<std::int64_t, 4> place;  // turn, phase, step, layer
    std::int64_t expert;
    friend auto operator<=>(const Row&, const Row&) = default;
};

class Lines {
public:
    Lines(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

    /// Returns the next line, without its end; no value after the last one.
    [[nodiscard]] std::optional<std::string_view> next() {
        if (rest_.empty()) return std::nullopt;
        std::string_view line = rest_.substr(0, rest_.find('\n'));
        rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
        ++number_;
        if (line.ends_with('\r')) line.remove_suffix(1);
        return line;
    }
    [[noreturn]] void fail(std::string_view what) const {
        throw FormatError(fmt::format("{}:{}: {}", name_, number_, what));
    }
    /// Returns `text` as a number from 0 to `highest`.
    [[nodiscard]] std::int64_t number(std::string_view text, std::string_view what, std::int64_t highest) const {
        std::int64_t value = -1;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > highest)
            fail(fmt::format("{} is no number from 0 to {}", what, highest));
        return value;
    }

private:
    std::string_view rest_;
    const std::string& name_;
    std::int64_t number_ = 0;
};

/// Returns the value of `key` in a line of "key=value" with blanks between; no value if it is not there.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
    for (std::size_t at = 0; (at = line.find(key, at)) != std::string_view::npos; at += key.size()) {
        const std::size_t equals = at + key.size();
        if (at == 0 || line[at - 1] != ' ' || equals >= line.size() || line[equals] != '=') continue;
        const std::string_view value = line.substr(equals + 1);
        return value.substr(0, value.find(' '));
    }
    return std::nullopt;
}

struct Shape {
    std::string model;
    std::int64_t n_layers = 0, n_experts = 0, n_chosen = 0;
};

Shape read_shape(const Lines& lines, std::string_view line) {
    Shape shape{.model = std::string(*value_of(line, "model"))};
    shape.model = shape.model.substr(shape.model.find_last_of('/') + 1);
    const auto number = [&](std::string_view key) {
        return lines.number(value_of(line, key).value_or(""), key, kMost);
    };
    shape.n_layers = number("n_layer");
    shape.n_experts = number("n_expert");
    shape.n_chosen = number("n_expert_used");
    if (shape.n_chosen < 1 || shape.n_chosen > shape.n_experts)
        lines.fail(fmt::format("{} of {} experts", shape.n_chosen, shape.n_experts));
    return shape;
}

Row read_row(const Lines& lines, std::string_view line, const Shape& shape) {
    std::array<std::string_view, 9> fields;
    std::size_t n = 0;
    for (std::string_view rest = line;; rest.remove_prefix(fields[n - 1].size() + 1)) {
        if (n == fields.size()) lines.fail("a row of more than 9 fields");
        fields[n] = rest.substr(0, rest.find(','));
        if (fields[n++].size() == rest.size()) break;
    }
    if (n != fields.size()) lines.fail(fmt::format("a row of {} fields, not 9", n));
    return {{lines.number(fields[0], "turn", kMostSteps), lines.number(fields[1], "phase", 1),
             lines.number(fields[2], "step", kMostSteps), lines.number(fields[3], "layer", shape.n_layers - 1)},
            lines.number(fields[5], "expert", shape.n_experts - 1)};
}

}  // namespace

RouteTrace parse_public_routes(std::string_view text, const std::string& name) {
    Lines lines(text, name);
    std::optional<Shape> shape;
    std::vector<Row> rows;
    while (const auto line = lines.next()) {
        if (line->starts_with('#')) {
            if (!shape && value_of(*line, "model")) shape = read_shape(lines, *line);
        } else if (*line != kColumns && !line->empty()) {
            if (!shape) lines.fail("a row before the line '# model=... n_layer=... n_expert=... n_expert_used=...'");
            rows.push_back(read_row(lines, *line, *shape));
        }
    }
    if (rows.empty()) throw FormatError(fmt::format("{}: a trace of routes without rows", name));
    std::ranges::sort(rows);
    RouteTrace trace{.model = shape->model};
    std::vector<std::int64_t> layers;
    for (const Row& row : rows) layers.push_back(row.place[3]);
    std::ranges::sort(layers);
    layers.erase(std::ranges::unique(layers).begin(), layers.end());
    for (const std::int64_t layer : layers)
        trace.layers.push_back({.layer = layer, .n_experts = shape->n_experts, .n_chosen = shape->n_chosen});

    const auto fail = [&](const Row& row, std::string_view what) {
        throw FormatError(
            fmt::format("{}: turn {}, step {}, layer {}: {}", name, row.place[0], row.place[2], row.place[3], what));
    };
    const auto k = static_cast<std::size_t>(shape->n_chosen);
    for (std::size_t begin = 0; begin < rows.size();) {
        const auto token = [](const Row& row) { return std::tuple(row.place[0], row.place[1], row.place[2]); };
        std::size_t end = begin;
        for (; end < rows.size() && token(rows[end]) == token(rows[begin]); ++end) {
            if (end > begin && rows[end] == rows[end - 1])
                fail(rows[end], fmt::format("expert {} twice", rows[end].expert));
        }
        for (std::size_t i = begin; i < end; i += k) {
            const std::size_t last = std::min(i + k, end) - 1;
            if (last + 1 - i != k || rows[last].place != rows[i].place ||
                (last + 1 < end && rows[last + 1].place == rows[i].place))
                fail(rows[i], fmt::format("it has not {} experts", k));
        }
        if (end - begin == k * layers.size()) {
            for (std::size_t i = begin; i < end; ++i)
                trace.layers[(i - begin) / k].ids.push_back(static_cast<std::uint16_t>(rows[i].expert));
            ++trace.n_tokens;
        } else {
            ++trace.n_left_out;
        }
        begin = end;
    }
    if (trace.n_tokens == 0)
        throw FormatError(fmt::format("{}: no token has rows in all {} layers", name, layers.size()));
    return trace;
}

}  // namespace slipstream::tools
