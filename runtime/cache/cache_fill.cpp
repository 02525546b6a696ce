// Rows are copied from one table of normal numbers, K and V of a position each from a start that Philox draws for
// (seed, layer, position). So a row costs a copy and no arithmetic, and 128K positions of a large model take seconds.
// Rows of different positions may overlap in the table, which no kernel can notice.
#include "runtime/cache/cache_fill.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/base/noise.h"

namespace slipstream {

namespace {

constexpr std::int64_t kPieceTokens = 64;
// Positions of the table, counted in numbers, at which a row can begin: so many that few rows are equal.
constexpr std::int64_t kTableStarts = 1 << 16;

// Numbers of the two Philox streams of this file. They differ from those of NoiseStream, though a clash would do no
// harm.
constexpr std::uint32_t kTableStream = 0x66696c6cU;
constexpr std::uint32_t kPlaceStream = 0x66696c6dU;

PhiloxBlock draw(std::uint64_t seed, std::uint64_t position, std::uint32_t layer, std::uint32_t stream) {
    return noise_block(seed, position, layer, static_cast<NoiseStream>(stream));
}

// Returns a number in (0, 1), made of the 32 random bits of `word` as noise.h does.
double uniform(std::uint32_t word) {
    return (2.0 * word + 1.0) * 0x1p-33;
}

// Returns at least `n` independent normal numbers. Box and Muller (1958): two uniform numbers give two independent
// normal numbers.
std::vector<float> normal_table(std::uint64_t seed, std::int64_t n) {
    std::vector<float> table;
    table.reserve(n + 3);
    for (std::uint64_t block = 0; static_cast<std::int64_t>(table.size()) < n; ++block) {
        const PhiloxBlock words = draw(seed, block, 0, kTableStream);
        for (int i = 0; i < 4; i += 2) {
            const double radius = std::sqrt(-2.0 * std::log(uniform(words.word[i])));
            const double angle = 2.0 * std::numbers::pi * uniform(words.word[i + 1]);
            table.push_back(static_cast<float>(radius * std::cos(angle)));
            table.push_back(static_cast<float>(radius * std::sin(angle)));
        }
    }
    return table;
}

std::int64_t most_row_cols(std::span<const KvLayout> layouts) {
    std::int64_t most = 0;
    for (const KvLayout& layout : layouts) most = std::max(most, layout.n_kv_heads * layout.head_dim);
    return most;
}

// Rows in memory that kernels can read: the host's own if the device shares it, else copies on the device.
class DeviceRows {
public:
    DeviceRows(Device& device, std::size_t n_floats) {
        if (device.shares_host_memory()) return;
        for (Buffer& buffer : buffers_)
            buffer = device.allocate(n_floats * sizeof(float), MemoryTag::Activations, "rows of the KV cache");
    }
    const float* k(Stream& stream, const std::vector<float>& rows) { return sent(buffers_[0], stream, rows); }
    const float* v(Stream& stream, const std::vector<float>& rows) { return sent(buffers_[1], stream, rows); }

private:
    static const float* sent(const Buffer& buffer, Stream& stream, const std::vector<float>& rows) {
        if (buffer.data() == nullptr) return rows.data();
        stream.copy(buffer.data(), rows.data(), buffer.size_bytes());
        return reinterpret_cast<const float*>(buffer.data());
    }
    Buffer buffers_[2];
};

}  // namespace

void fill_cache(KvCache& cache, ExecRef exec, std::int64_t n_tokens, std::uint64_t seed,
                const std::function<void(std::int64_t)>& on_progress) {
    CHECK(cache.n_nodes() == 0 && n_tokens >= cache.n_committed() && n_tokens <= cache.context_tokens(),
          "{} positions wanted, {} committed, {} nodes, a context of {}", n_tokens, cache.n_committed(),
          cache.n_nodes(), cache.context_tokens());
    const std::int64_t most_cols = most_row_cols(cache.store().layouts());
    const std::int64_t piece = std::min(kPieceTokens, cache.max_nodes());
    const std::vector<float> table = normal_table(seed, kTableStarts + most_cols);
    std::vector<float> k(piece * most_cols);
    std::vector<float> v(k.size());
    DeviceRows device_rows(exec.device, k.size());
    std::vector<NodeId> nodes;
    while (cache.n_committed() < n_tokens) {
        const std::int64_t first = cache.n_committed();
        const std::int64_t n = std::min(piece, n_tokens - first);
        nodes.clear();
        for (std::int64_t i = 0; i < n; ++i)
            nodes.push_back(cache.add_node(i == 0 ? kCommittedTip : nodes.back(), NodeKind::Certain));
        for (std::int64_t layer = 0; layer < cache.n_layers(); ++layer) {
            if (!cache.layout(layer).state.empty()) {
                cache.states()->set_next(layer, first + n);  // a state of zeros, whatever the KV is
                continue;
            }
            const std::int64_t cols = cache.layout(layer).n_kv_heads * cache.layout(layer).head_dim;
            for (std::int64_t i = 0; i < n; ++i) {
                const PhiloxBlock place =
                    draw(seed, static_cast<std::uint64_t>(first + i), static_cast<std::uint32_t>(layer), kPlaceStream);
                std::copy_n(table.data() + place.word[0] % kTableStarts, cols, k.data() + i * cols);
                std::copy_n(table.data() + place.word[1] % kTableStarts, cols, v.data() + i * cols);
            }
            kv_write(exec, {.shape = cache.layout(layer),
                            .k = matrix_view(device_rows.k(exec.stream, k), n, cols),
                            .v = matrix_view(device_rows.v(exec.stream, v), n, cols),
                            .scratch_k = cache.scratch_k(layer),
                            .scratch_v = cache.scratch_v(layer),
                            .scratch_rows = scratch_rows(nodes)});
            exec.stream.synchronize();  // k and v are overwritten next
        }
        cache.commit(exec, nodes);
        exec.stream.synchronize();  // commit() reads `nodes`, which is overwritten next
        if (on_progress) on_progress(cache.n_committed());
    }
}

std::size_t fill_cache_bytes(std::span<const KvLayout> layouts) {
    return 2 * static_cast<std::size_t>(kPieceTokens) * row_bytes(DType::F32, most_row_cols(layouts));
}

}  // namespace slipstream
