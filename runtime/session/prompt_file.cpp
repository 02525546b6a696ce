#include "runtime/session/prompt_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <xxhash.h>

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/matmul.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr SideFileKind kKind{.magic = "SLPSPRMT", .suffix = ".prompt", .contents = "the hidden states of the prompt"};
constexpr std::uint32_t kVersion = 1;

struct Head {
    std::array<char, 8> magic{};
    std::uint32_t version = 0;
    std::uint32_t zero = 0;
    std::uint64_t session_hash = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t n_after = 0;
    std::int64_t n_layers = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t layers_hash = 0;
    std::uint64_t hash = 0;  // XXH3-64 of all fields before it
};
static_assert(sizeof(Head) == 80);

std::uint64_t hash_of(std::span<const std::byte> bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

// Reads the head of a side file; no value if the file is shorter.
std::optional<Head> read_bytes_of_head(const SideFile& file) {
    Head found;
    if (file.size() < sizeof(found)) return std::nullopt;
    file.read(0, std::as_writable_bytes(std::span(&found, 1)));
    return found;
}

}  // namespace

std::int64_t PromptFileShape::n_prefill_chunks() const {
    return end / kPrefillChunkTokens - begin / kPrefillChunkTokens + 1;
}

std::size_t PromptFileShape::hidden_bytes(std::int64_t prefill_chunk) const {
    if (prefill_chunk + 1 == n_prefill_chunks()) return static_cast<std::size_t>(n_after) * row_bytes;
    const std::int64_t next = (begin / kPrefillChunkTokens + prefill_chunk + 1) * kPrefillChunkTokens;
    return static_cast<std::size_t>(prefill_chunk == 0 ? next - begin : kPrefillChunkTokens) * row_bytes;
}

std::uint64_t PromptFileShape::file_bytes() const {
    std::uint64_t n = sizeof(Head);
    for (const std::size_t bytes : after_bytes) n += sizeof(std::uint64_t) + bytes;
    const std::uint64_t slot = 2 * sizeof(std::uint64_t) * (1 + static_cast<std::uint64_t>(n_prefill_chunks()));
    return n + 2 * (slot + static_cast<std::uint64_t>(end - begin + n_after) * row_bytes);
}

fs::path PromptFile::path_of(const fs::path& session) {
    return SideFile::path_of(session, kKind);
}

void PromptFile::remove(const fs::path& session) {
    SideFile::remove(session, kKind);
}

PromptFile::PromptFile(SideFile file, PromptFileShape shape) : file_(std::move(file)), shape_(std::move(shape)) {}

std::vector<std::byte> PromptFileShape::head() const {
    CHECK(0 <= begin && begin < end && n_after >= 1 && begin % kChunkTokens == 0 && end % kPrefillChunkTokens == 0,
          "a prompt from {} to {}", begin, end);
    Head head{.version = kVersion,
              .session_hash = session_hash,
              .begin = begin,
              .end = end,
              .n_after = n_after,
              .n_layers = std::ssize(after_bytes),
              .row_bytes = row_bytes,
              .layers_hash = hash_of(std::as_bytes(std::span(after_bytes)))};
    std::ranges::copy(kKind.magic, head.magic.begin());
    const auto bytes = std::as_bytes(std::span(&head, 1));
    head.hash = hash_of(bytes.first(bytes.size() - sizeof(head.hash)));
    return {bytes.begin(), bytes.end()};
}

std::optional<PromptFileHead> PromptFile::read_head(const fs::path& session) {
    const std::optional<SideFile> file = SideFile::open(session, kKind, O_RDONLY);
    const std::optional<Head> found = file ? read_bytes_of_head(*file) : std::nullopt;
    if (!found) return std::nullopt;
    const auto bytes = std::as_bytes(std::span(&*found, 1));
    if (found->version != kVersion || found->hash != hash_of(bytes.first(bytes.size() - sizeof(found->hash))))
        return std::nullopt;
    return PromptFileHead{.file_bytes = file->size(),
                          .begin = found->begin,
                          .end = found->end,
                          .n_after = found->n_after,
                          .n_layers = found->n_layers};
}

std::optional<PromptFile> PromptFile::open(const fs::path& session, PromptFileShape shape) {
    std::optional<SideFile> file = SideFile::open(session, kKind, O_RDWR);
    const std::optional<Head> found = file ? read_bytes_of_head(*file) : std::nullopt;
    if (!found || found->begin < 0 || found->begin % kChunkTokens != 0 || found->begin >= shape.end)
        return std::nullopt;
    shape.begin = found->begin;
    if (file->size() != shape.file_bytes() || !std::ranges::equal(shape.head(), std::as_bytes(std::span(&*found, 1))))
        return std::nullopt;
    return PromptFile(std::move(*file), std::move(shape));
}

PromptFile PromptFile::create(const fs::path& session, const PromptFileShape& shape) {
    return {SideFile::create(session, kKind, shape.file_bytes(), shape.head()), shape};
}

std::uint64_t PromptFile::rows_at(std::int64_t layer) const {
    std::uint64_t at = sizeof(Head);
    for (std::int64_t i = 0; i < layer; ++i) at += sizeof(std::uint64_t) + shape_.after_bytes[i];
    return at;
}

std::size_t PromptFile::slot_head_bytes() const {
    return 2 * sizeof(std::uint64_t) * (1 + static_cast<std::size_t>(shape_.n_prefill_chunks()));
}

std::uint64_t PromptFile::slot_at(std::size_t slot) const {
    const std::uint64_t first = rows_at(std::ssize(shape_.after_bytes));
    return first + slot * ((shape_.file_bytes() - first) / 2);
}

std::uint64_t PromptFile::hidden_at(std::size_t slot, std::int64_t prefill_chunk) const {
    std::uint64_t at = slot_at(slot) + slot_head_bytes();
    for (std::int64_t i = 0; i < prefill_chunk; ++i) at += shape_.hidden_bytes(i);
    return at;
}

std::vector<std::byte> PromptFile::encode(const Slot& slot) const {
    const std::size_t n = slot.n_layers.size() * sizeof(std::uint64_t);
    std::vector<std::byte> bytes(slot_head_bytes());
    std::memcpy(bytes.data(), &slot.generation, sizeof(slot.generation));
    std::memcpy(bytes.data() + sizeof(slot.generation), slot.n_layers.data(), n);
    std::memcpy(bytes.data() + sizeof(slot.generation) + n, slot.hashes.data(), n);
    const std::size_t at = sizeof(slot.generation) + 2 * n;
    const std::uint64_t hash = hash_of(std::span(bytes).first(at));
    std::memcpy(bytes.data() + at, &hash, sizeof(hash));
    return bytes;
}

PromptFile::Slot PromptFile::read_slot(std::size_t slot) const {
    std::vector<std::byte> bytes(slot_head_bytes());
    file_.read(slot_at(slot), bytes);
    const auto n = static_cast<std::size_t>(shape_.n_prefill_chunks());
    Slot found{.generation = 0, .n_layers = std::vector<std::int64_t>(n), .hashes = std::vector<std::uint64_t>(n)};
    std::memcpy(&found.generation, bytes.data(), sizeof(found.generation));
    std::memcpy(found.n_layers.data(), bytes.data() + 8, 8 * n);
    std::memcpy(found.hashes.data(), bytes.data() + 8 + 8 * n, 8 * n);
    const std::int64_t n_layers = std::ssize(shape_.after_bytes);
    bool is_good = encode(found) == bytes && found.n_layers.front() <= n_layers && found.n_layers.front() > 0 &&
                   found.n_layers.back() >= 0 && found.n_layers.back() < n_layers;
    for (std::size_t i = 1; i < n; ++i) is_good = is_good && found.n_layers[i] <= found.n_layers[i - 1];
    if (!is_good) found.generation = 0;
    return found;
}

// Returns whether the hidden states and rows that the slot names have their checksums.
bool PromptFile::is_whole(std::size_t slot, const Slot& read_slot) const {
    std::vector<std::byte> bytes;
    const std::int64_t n_layers = std::ssize(shape_.after_bytes);
    for (std::int64_t i = 0; i < shape_.n_prefill_chunks(); ++i) {
        if (read_slot.n_layers[i] == 0 || read_slot.n_layers[i] == n_layers) continue;
        bytes.resize(shape_.hidden_bytes(i));
        file_.read(hidden_at(slot, i), bytes);
        if (hash_of(bytes) != read_slot.hashes[i]) return false;
    }
    for (std::int64_t layer = 0; layer < read_slot.n_layers.back(); ++layer) {
        std::uint64_t hash = 0;
        file_.read(rows_at(layer), std::as_writable_bytes(std::span(&hash, 1)));
        bytes.resize(shape_.after_bytes[layer]);
        file_.read(rows_at(layer) + sizeof(hash), bytes);
        if (hash_of(bytes) != hash) return false;
    }
    return true;
}

std::optional<PromptState> PromptFile::read_state(const std::function<bool(const PromptState&)>& is_usable) {
    std::array<Slot, 2> slots{read_slot(0), read_slot(1)};
    const std::size_t newer = slots[1].generation > slots[0].generation ? 1 : 0;
    for (const std::size_t slot : {newer, 1 - newer}) {
        const Slot& found = slots[slot];
        if (found.generation == 0 || !is_whole(slot, found)) continue;
        const PromptState state{
            .begin = shape_.begin, .end = shape_.end, .n_after = shape_.n_after, .n_layers = found.n_layers};
        if (!is_usable(state)) continue;
        slot_ = slot;
        generation_ = std::max(slots[0].generation, slots[1].generation);
        n_rows_saved_ = state.n_layers.back();
        return state;
    }
    return std::nullopt;
}

void PromptFile::read_hidden(std::int64_t prefill_chunk, std::byte* out) const {
    file_.read(hidden_at(slot_, prefill_chunk), {out, shape_.hidden_bytes(prefill_chunk)});
}

void PromptFile::read_rows_after(std::int64_t layer, std::byte* out) const {
    file_.read(rows_at(layer) + sizeof(std::uint64_t), {out, shape_.after_bytes[layer]});
}

void PromptFile::save_rows_after(const PromptState& state, const PromptReader& reader) {
    std::vector<std::byte> rows;
    for (; n_rows_saved_ < state.n_layers.back(); ++n_rows_saved_) {
        rows.resize(shape_.after_bytes[n_rows_saved_]);
        reader.rows_after(n_rows_saved_, rows.data());
        const std::uint64_t hash = hash_of(rows);
        file_.write(rows_at(n_rows_saved_), std::as_bytes(std::span(&hash, 1)));
        file_.write(rows_at(n_rows_saved_) + sizeof(hash), rows);
    }
}

// Writes the hidden states that `state` needs, then the head of the slot. Until the head is written, the slot that is
// replaced holds no state, since a checksum of it fails.
void PromptFile::save_hidden(const PromptState& state,
                             const std::function<const std::byte*(std::int64_t prefill_chunk)>& rows,
                             const std::function<void(std::int64_t prefill_chunk)>& on_read) {
    const std::size_t slot = 1 - slot_;
    Slot made{.generation = generation_ + 1,
              .n_layers = state.n_layers,
              .hashes = std::vector<std::uint64_t>(state.n_layers.size(), 0)};
    const std::int64_t n_chunks = state.n_prefill_chunks();
    const std::int64_t first = state.first_chunk_at(state.n_layers.back()) % n_chunks;
    for (std::int64_t i = 0; i < n_chunks; ++i) {
        const std::int64_t chunk = (first + i) % n_chunks;
        if (state.n_layers[chunk] > 0 && state.n_layers[chunk] < std::ssize(shape_.after_bytes)) {
            const std::span<const std::byte> hidden(rows(chunk), shape_.hidden_bytes(chunk));
            made.hashes[chunk] = hash_of(hidden);
            file_.write(hidden_at(slot, chunk), hidden);
        }
        on_read(chunk);
    }
    file_.write(slot_at(slot), encode(made));
    slot_ = slot;
    generation_ = made.generation;
}

}  // namespace slipstream
