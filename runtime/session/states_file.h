// StatesFile: the side file of a session whose model has recurrent layers. It holds the states of these layers after
// one or two positions of the text, from which the text goes on together with the KV in the session.
//
// Two slots replace each other, each with a position and the states after it. A slot is written before its head, which
// names it, so a killed program leaves the other slot; before that, the other slot is forced to the disk, so a power
// failure leaves it, too. All sizes follow from the session and its model: the file is read only if its head is what
// this program would write, so no count of the file is trusted. Everything has a checksum.
//
// Layout, little-endian: head (magic "SLPSSTAT", u32 version, u32 zero, u64 hash of the session's beginning, u64 bytes
// of the states of all layers, u64 hash of their sizes by layer, u64 XXH3-64 of these); two slots: u64 generation, i64
// position, u64 XXH3-64 of the states, u64 XXH3-64 of these; the states, layer by layer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "runtime/session/session_begin.h"
#include "runtime/session/session_lock.h"
#include "runtime/session/side_file.h"

namespace slipstream {

/// The session for which a side file is made; all sizes of the file follow from it.
struct StatesFileShape {
    std::uint64_t session_hash = 0;          // XXH3-64 of the first record of the session
    std::int64_t context_tokens = 0;         // no position is after it
    std::vector<std::size_t> layer_bytes{};  // [layers]: bytes of the states of a layer; 0 if it is not recurrent

    StatesFileShape() = default;
    /// `layouts` [layers]: of the session's model.
    StatesFileShape(const SessionBegin& begin, std::span<const KvLayout> layouts);
    /// Returns the bytes of the states of all layers after one position.
    [[nodiscard]] std::uint64_t state_bytes() const;
    [[nodiscard]] std::uint64_t file_bytes() const;
    /// Returns how the file begins.
    [[nodiscard]] std::vector<std::byte> head() const;
};

enum class StatesCondition : std::uint8_t { Good, OfAnotherSession, Damaged };

/// What the side file of a session has, by its checksums.
struct StatesFileFindings {
    std::uint64_t file_bytes = 0;
    StatesCondition condition = StatesCondition::Damaged;
    std::int64_t position = 0;  // of the last whole states within the text; 0: none
};

class StatesFile {
public:
    [[nodiscard]] static std::filesystem::path path_of(const std::filesystem::path& session);
    /// Removes the side file of a session, if there is one. Leaves a file of that name that is something else.
    static void remove(const std::filesystem::path& session);

    /// Returns what the side file of a session with `text_tokens` tokens has; no value if there is no file of that
    /// name. Needs no model. Throws IoError.
    [[nodiscard]] static std::optional<StatesFileFindings> inspect(const std::filesystem::path& session,
                                                                   const SessionBegin& begin, std::int64_t text_tokens);
    /// Opens the side file of a session. Returns no value if there is none, or one that is not for `shape`. With
    /// SessionUse::Read, nothing may be saved. Throws IoError if the system refuses.
    [[nodiscard]] static std::optional<StatesFile> open(const std::filesystem::path& session,
                                                        const StatesFileShape& shape, SessionUse use);
    /// Creates the side file, in place of an old one, with room for all of it. Throws IoError, also if there is a file
    /// of that name that is something else.
    [[nodiscard]] static StatesFile create(const std::filesystem::path& session, const StatesFileShape& shape);

    /// Chooses the slot with the last position up to `max_tokens` whose states are whole, and returns its position; 0:
    /// there is none. save() then replaces the other one, or one that is after `max_tokens`. Throws IoError.
    [[nodiscard]] std::int64_t choose(std::int64_t max_tokens);
    /// Copies the states of a recurrent layer in the chosen slot to `out` [layer_bytes[layer]]. Throws IoError.
    void read_state(std::int64_t layer, std::byte* out) const;
    /// Saves states after `position` in place of those that were not saved or chosen last. `read` fills `out` with the
    /// states of a recurrent layer; it is called for each of them, in order. Before, the other slot is forced to the
    /// disk. Throws IoError, and what `read` throws; the other slot is then still there.
    void save(std::int64_t position, const std::function<void(std::int64_t layer, std::byte* out)>& read);
    /// Returns when everything that was saved is on the disk. Throws IoError.
    void sync();

private:
    friend struct StatesFileShape;
    struct Slot {
        std::uint64_t generation = 0;  // 0: none
        std::int64_t position = 0;
        std::uint64_t states_hash = 0;
        std::uint64_t hash = 0;  // XXH3-64 of the fields before it
    };

    StatesFile(SideFile file, StatesFileShape shape);
    [[nodiscard]] std::uint64_t slot_at(std::size_t slot) const;
    [[nodiscard]] Slot read_slot(std::size_t slot) const;
    [[nodiscard]] bool is_unnamed(std::size_t slot) const;
    [[nodiscard]] bool is_whole(std::size_t slot, const Slot& found) const;

    SideFile file_;
    StatesFileShape shape_;
    std::size_t slot_ = 0;          // the slot that was chosen or saved last
    std::uint64_t generation_ = 0;  // the highest of both slots
    bool is_synced_ = false;        // whether slot_ is on the disk; after opening, this is not known
};

}  // namespace slipstream
