#include "runtime/session/states_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "runtime/cache/recurrent_states.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "SLPSSTAT";
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

[[noreturn]] void refuse(const fs::path& path, int error) {
    throw IoError(
        fmt::format("{}: the states of recurrent layers cannot be kept: {}; {}", path.string(), std::strerror(error),
                    error == EEXIST ? "remove or rename that file, which is not a session's, and run the same "
                                      "command again"
                                    : "when that is put right, run the same command again"));
}
[[noreturn]] void refuse_reading(const fs::path& path, int error) {
    throw IoError(
        fmt::format("{}: the states of recurrent layers cannot be read: {}", path.string(), std::strerror(error)));
}

// Opens a file that is a side file, of whichever session and version; an invalid handle with errno 0 if there is a file
// that is not.
FileHandle open_side_file(const fs::path& path, int access) {
    FileHandle file(
        retry_interrupted([&] { return ::open(path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }));
    if (file.get() < 0) return file;
    struct stat status {};
    std::array<char, 8> magic{};
    const bool is_ours =
        ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
        retry_interrupted([&] { return ::pread(file.get(), magic.data(), magic.size(), 0); }) == std::ssize(magic) &&
        std::string_view(magic.data(), magic.size()) == kMagic;
    errno = 0;
    return is_ours ? std::move(file) : FileHandle(-1);
}

// Reads the head and the size of a side file. Returns no value if the head is damaged or of another version.
std::optional<std::pair<Head, std::uint64_t>> read_file_head(const FileHandle& file) {
    Head found;
    struct stat status {};
    if (retry_interrupted([&] { return ::pread(file.get(), &found, sizeof(found), 0); }) != sizeof(found) ||
        ::fstat(file.get(), &status) != 0 || found.version != kVersion || found.hash != hash_of_fields(found))
        return std::nullopt;
    return std::pair(found, static_cast<std::uint64_t>(status.st_size));
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
    fs::path path = session;
    path += ".states";
    return path;
}

void StatesFile::remove(const fs::path& session) {
    const fs::path path = path_of(session);
    if (open_side_file(path, O_RDONLY).get() >= 0) static_cast<void>(::unlink(path.c_str()));
}

StatesFile::StatesFile(fs::path path, FileHandle file, StatesFileShape shape)
    : path_(std::move(path)), file_(std::move(file)), shape_(std::move(shape)) {}

std::vector<std::byte> StatesFile::head() const {
    Head head{.version = kVersion,
              .session_hash = shape_.session_hash,
              .state_bytes = shape_.state_bytes(),
              .layers_hash = hash_of(std::as_bytes(std::span(shape_.layer_bytes)))};
    std::ranges::copy(kMagic, head.magic.begin());
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
    FileHandle side = open_side_file(path, O_RDONLY);
    if (side.get() < 0 && errno != 0) refuse_reading(path, errno);
    if (side.get() < 0) return findings;
    const auto found = read_file_head(side);
    if (!found) return findings;
    StatesFileShape shape;
    shape.session_hash = hash_of(encode_session_begin(begin));
    if (found->first.session_hash != shape.session_hash) {
        findings.condition = StatesCondition::OfAnotherSession;
        return findings;
    }
    // The states of all layers as if they were of one: the checksum is of their bytes in order.
    const std::uint64_t heads_bytes = sizeof(Head) + 2 * sizeof(Slot);
    if (found->second < heads_bytes || found->first.state_bytes != (found->second - heads_bytes) / 2 ||
        (found->second - heads_bytes) % 2 != 0)
        return findings;
    shape.context_tokens = begin.context_tokens;
    shape.layer_bytes = {found->first.state_bytes};
    StatesFile file(path, std::move(side), std::move(shape));
    // Without whole states, slots that were never written, or not yet named, are no damage.
    if (file.choose(begin.context_tokens) > 0 || (file.is_unnamed(0) && file.is_unnamed(1)))
        findings.condition = StatesCondition::Good;
    findings.position = file.choose(text_tokens);
    return findings;
}

std::optional<StatesFile> StatesFile::open(const fs::path& session, const StatesFileShape& shape, SessionUse use) {
    const fs::path path = path_of(session);
    FileHandle file = open_side_file(path, use == SessionUse::Read ? O_RDONLY : O_RDWR);
    if (file.get() < 0 && errno != 0 && errno != ENOENT) refuse_reading(path, errno);
    if (file.get() < 0) return std::nullopt;
    const auto found = read_file_head(file);
    if (!found || found->second != shape.file_bytes()) return std::nullopt;
    StatesFile opened(path, std::move(file), shape);
    if (!std::ranges::equal(opened.head(), std::as_bytes(std::span(&found->first, 1)))) return std::nullopt;
    return opened;
}

StatesFile StatesFile::create(const fs::path& session, const StatesFileShape& shape) {
    const fs::path path = path_of(session);
    remove(session);
    FileHandle file(retry_interrupted(
        [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnlyMode); }));
    if (file.get() < 0) refuse(path, errno);
    StatesFile made(path, std::move(file), shape);
    const auto n_bytes = static_cast<off_t>(shape.file_bytes());
    try {
        if (retry_interrupted([&] { return ::fallocate(made.file_.get(), 0, 0, n_bytes); }) != 0 &&
            (errno != EOPNOTSUPP || retry_interrupted([&] { return ::ftruncate(made.file_.get(), n_bytes); }) != 0))
            refuse(path, errno);
        made.write(0, made.head());
    } catch (...) {
        static_cast<void>(::unlink(path.c_str()));
        throw;
    }
    return made;
}

std::uint64_t StatesFile::slot_at(std::size_t slot) const {
    return sizeof(Head) + slot * (sizeof(Slot) + shape_.state_bytes());
}

StatesFile::Slot StatesFile::read_slot(std::size_t slot) const {
    Slot found;
    read(slot_at(slot), std::as_writable_bytes(std::span(&found, 1)));
    const bool is_good = found.hash == hash_of_fields(found) && found.position > 0 &&
                         found.position % kChunkTokens == 0 && found.position <= shape_.context_tokens;
    return is_good ? found : Slot{};
}

// Returns whether the slot has no head yet.
bool StatesFile::is_unnamed(std::size_t slot) const {
    std::array<std::byte, sizeof(Slot)> bytes;
    read(slot_at(slot), bytes);
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
        read(at, bytes);
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
    read(at, {out, shape_.layer_bytes[layer]});
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
        write(at, bytes);
        at += bytes.size();
    }
    Slot made{.generation = generation_ + 1, .position = position, .states_hash = hash.value()};
    made.hash = hash_of_fields(made);
    write(slot_at(slot), std::as_bytes(std::span(&made, 1)));
    slot_ = slot;
    generation_ = made.generation;
}

void StatesFile::sync() {
    if (retry_interrupted([&] { return ::fdatasync(file_.get()); }) != 0) refuse(path_, errno);
    is_synced_ = true;
}

void StatesFile::read(std::uint64_t at, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t n =
            retry_interrupted([&] { return ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at)); });
        if (n <= 0) refuse_reading(path_, n < 0 ? errno : EIO);
        out = out.subspan(n);
        at += static_cast<std::uint64_t>(n);
    }
}

void StatesFile::write(std::uint64_t at, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t n = retry_interrupted(
            [&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)); });
        if (n <= 0) refuse(path_, n < 0 ? errno : ENOSPC);
        bytes = bytes.subspan(n);
        at += static_cast<std::uint64_t>(n);
    }
}

}  // namespace slipstream
