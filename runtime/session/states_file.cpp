#include "runtime/session/states_file.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include <xxhash.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/cache/recurrent_states.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr SideFileKind kKind{.magic = "SLPSSTAT", .suffix = ".states", .contents = "the states of recurrent layers"};
constexpr std::uint32_t kVersion = 1;

struct Head {
    std::array<char, 8> magic{};
    std::uint32_t version = 0;
    std::uint32_t zero = 0;
    std::uint64_t session_hash = 0;
    std::uint64_t state_bytes = 0;
    std::uint64_t layers_hash = 0;
    std::uint64_t hash = 0;  // XXH3-64 of all fields before it
};
static_assert(sizeof(Head) == 48);

std::uint64_t hash_of(std::span<const std::byte> bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

// Returns the checksum of a head or of a slot's head: of all bytes before its last field.
template <typename T>
std::uint64_t hash_of_fields(const T& head) {
    return hash_of(std::as_bytes(std::span(&head, 1)).first(sizeof(T) - sizeof(head.hash)));
}

struct FreeHash {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
// The checksum of the states of all layers, which are added one after the other.
class StatesHash {
public:
    StatesHash() : state_(XXH3_createState()) {
        if (state_ == nullptr) throw OutOfBudget("no memory for a checksum");
        static_cast<void>(XXH3_64bits_reset(state_.get()));
    }
    void add(std::span<const std::byte> bytes) {
        static_cast<void>(XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()));
    }
    [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

private:
    std::unique_ptr<XXH3_state_t, FreeHash> state_;
};

// Reads the head of a side file. Returns no value if it is damaged or of another version.
std::optional<Head> read_head(const SideFile& file) {
    Head found;
    if (file.size() < sizeof(found)) return std::nullopt;
    file.read(0, std::as_writable_bytes(std::span(&found, 1)));
    if (found.version != kVersion || found.hash != hash_of_fields(found)) return std::nullopt;
    return found;
}

}  // namespace

StatesFileShape::StatesFileShape(const SessionBegin& begin, std::span<const KvLayout> layouts)
    : session_hash(hash_of(encode_session_begin(begin))), context_tokens(begin.context_tokens) {
    for (const KvLayout& layout : layouts) layer_bytes.push_back(RecurrentStates::state_bytes({&layout, 1}));
}

std::uint64_t StatesFileShape::state_bytes() const {
    std::uint64_t n = 0;
    for (const std::size_t bytes : layer_bytes) n += bytes;
    return n;
}

std::uint64_t StatesFileShape::file_bytes() const {
    return sizeof(Head) + 2 * (sizeof(StatesFile::Slot) + state_bytes());
}

fs::path StatesFile::path_of(const fs::path& session) {
    return SideFile::path_of(session, kKind);
}

void StatesFile::remove(const fs::path& session) {
    SideFile::remove(session, kKind);
}

StatesFile::StatesFile(SideFile file, StatesFileShape shape) : file_(std::move(file)), shape_(std::move(shape)) {}

std::vector<std::byte> StatesFileShape::head() const {
    Head head{.version = kVersion,
              .session_hash = session_hash,
              .state_bytes = state_bytes(),
              .layers_hash = hash_of(std::as_bytes(std::span(layer_bytes)))};
    std::ranges::copy(kKind.magic, head.magic.begin());
    head.hash = hash_of_fields(head);
    const auto bytes = std::as_bytes(std::span(&head, 1));
    return {bytes.begin(), bytes.end()};
}

std::optional<StatesFileFindings> StatesFile::inspect(const fs::path& session, const SessionBegin& begin,
                                                      std::int64_t text_tokens) {
    const fs::path path = path_of(session);
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
    StatesFileFindings findings{.file_bytes = fs::file_size(path, error)};
    if (error) findings.file_bytes = 0;
    std::optional<SideFile> side = SideFile::open(session, kKind, O_RDONLY);
    const std::optional<Head> found = side ? read_head(*side) : std::nullopt;
    if (!found) return findings;
    StatesFileShape shape;
    shape.session_hash = hash_of(encode_session_begin(begin));
    if (found->session_hash != shape.session_hash) {
        findings.condition = StatesCondition::OfAnotherSession;
        return findings;
    }
    // The states of all layers as if they were of one: the checksum is of their bytes in order.
    const std::uint64_t heads_bytes = sizeof(Head) + 2 * sizeof(Slot);
    if (findings.file_bytes < heads_bytes || found->state_bytes != (findings.file_bytes - heads_bytes) / 2 ||
        (findings.file_bytes - heads_bytes) % 2 != 0)
        return findings;
    shape.context_tokens = begin.context_tokens;
    shape.layer_bytes = {found->state_bytes};
    StatesFile file(std::move(*side), std::move(shape));
    // Without whole states, slots that were never written, or not yet named, are no damage.
    if (file.choose(begin.context_tokens) > 0 || (file.is_unnamed(0) && file.is_unnamed(1)))
        findings.condition = StatesCondition::Good;
    findings.position = file.choose(text_tokens);
    return findings;
}

std::optional<StatesFile> StatesFile::open(const fs::path& session, const StatesFileShape& shape, SessionUse use) {
    std::optional<SideFile> side = SideFile::open(session, kKind, use == SessionUse::Read ? O_RDONLY : O_RDWR);
    const std::optional<Head> found = side ? read_head(*side) : std::nullopt;
    if (!found || side->size() != shape.file_bytes() ||
        !std::ranges::equal(shape.head(), std::as_bytes(std::span(&*found, 1))))
        return std::nullopt;
    return StatesFile(std::move(*side), shape);
}

StatesFile StatesFile::create(const fs::path& session, const StatesFileShape& shape) {
    return {SideFile::create(session, kKind, shape.file_bytes(), shape.head()), shape};
}

std::uint64_t StatesFile::slot_at(std::size_t slot) const {
    return sizeof(Head) + slot * (sizeof(Slot) + shape_.state_bytes());
}

StatesFile::Slot StatesFile::read_slot(std::size_t slot) const {
    Slot found;
    file_.read(slot_at(slot), std::as_writable_bytes(std::span(&found, 1)));
    const bool is_good = found.hash == hash_of_fields(found) && found.position > 0 &&
                         found.position % kChunkTokens == 0 && found.position <= shape_.context_tokens;
    return is_good ? found : Slot{};
}

// Returns whether the slot has no head yet.
bool StatesFile::is_unnamed(std::size_t slot) const {
    std::array<std::byte, sizeof(Slot)> bytes;
    file_.read(slot_at(slot), bytes);
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
}

// Returns whether the states that the slot names have their checksum.
bool StatesFile::is_whole(std::size_t slot, const Slot& found) const {
    constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
    StatesHash hash;
    std::vector<std::byte> bytes;
    const std::uint64_t begin = slot_at(slot) + sizeof(Slot);
    const std::uint64_t end = begin + shape_.state_bytes();
    for (std::uint64_t at = begin; at < end; at += bytes.size()) {
        bytes.resize(std::min(kBlockBytes, end - at));
        file_.read(at, bytes);
        hash.add(bytes);
    }
    return hash.value() == found.states_hash;
}

std::int64_t StatesFile::choose(std::int64_t max_tokens) {
    const std::array<Slot, 2> slots{read_slot(0), read_slot(1)};
    generation_ = std::max(slots[0].generation, slots[1].generation);
    const std::size_t last = slots[1].position > slots[0].position ? 1 : 0;
    for (const std::size_t slot : {last, 1 - last}) {
        const Slot& found = slots[slot];
        if (found.generation == 0 || found.position > max_tokens || !is_whole(slot, found)) continue;
        slot_ = slot;
        return found.position;
    }
    slot_ = 1 - last;  // so that `last` is replaced
    return 0;
}

void StatesFile::read_state(std::int64_t layer, std::byte* out) const {
    std::uint64_t at = slot_at(slot_) + sizeof(Slot);
    for (std::int64_t i = 0; i < layer; ++i) at += shape_.layer_bytes[i];
    file_.read(at, {out, shape_.layer_bytes[layer]});
}

// Until the head is written, the slot that is replaced has no states, since their checksum fails.
void StatesFile::save(std::int64_t position,
                      const std::function<void(std::int64_t layer, std::byte* out)>& read_layer) {
    CHECK(position > 0 && position % kChunkTokens == 0 && position <= shape_.context_tokens,
          "states after {} positions", position);
    if (!is_synced_) sync();
    is_synced_ = false;
    const std::size_t slot = 1 - slot_;
    StatesHash hash;
    std::vector<std::byte> bytes;
    std::uint64_t at = slot_at(slot) + sizeof(Slot);
    for (std::int64_t layer = 0; layer < std::ssize(shape_.layer_bytes); ++layer) {
        if (shape_.layer_bytes[layer] == 0) continue;
        bytes.resize(shape_.layer_bytes[layer]);
        read_layer(layer, bytes.data());
        hash.add(bytes);
        file_.write(at, bytes);
        at += bytes.size();
    }
    Slot made{.generation = generation_ + 1, .position = position, .states_hash = hash.value()};
    made.hash = hash_of_fields(made);
    file_.write(slot_at(slot), std::as_bytes(std::span(&made, 1)));
    slot_ = slot;
    generation_ = made.generation;
}

void StatesFile::sync() {
    file_.sync();
    is_synced_ = true;
}

}  // namespace slipstream
