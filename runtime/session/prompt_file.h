// PromptFile: the side file of a session whose prompt is being computed layer by layer. It holds what goes on with the
// prompt after the program has ended in any way, beside the KV in the session: the hidden states of the prompt, in two
// slots that replace each other, and the KV rows of the tokens that follow the prompt in the same pass.
//
// The file is removed when the prompt is computed. A slot is written before its head, which names it, so a killed
// program leaves the other slot. All sizes follow from the session and its model: the file is read only if its head is
// what this program would write, so no count of the file is trusted. Everything has a checksum.
//
// Layout, little-endian: head (magic "SLPSPRMT", u32 version, u32 zero, u64 hash of the session's beginning, i64 begin,
// end, n_after, n_layers, row bytes, u64 hash of the layers' row sizes, u64 XXH3-64 of these); for each layer: u64
// XXH3-64 of its rows, the rows; two slots: u64 generation, i64 layers passed and u64 XXH3-64 of the hidden states
// [prefill chunks] each, u64 XXH3-64 of these; the hidden states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/pass/prompt_checkpoint.h"
#include "runtime/session/side_file.h"

namespace slipstream {

/// The prompt for which a side file is made; all sizes of the file follow from it.
struct PromptFileShape {
    std::uint64_t session_hash = 0;  // XXH3-64 of the first record of the session
    std::int64_t begin = 0;          // begin, end, n_after: as in PromptState; begin and end are multiples of 256
    std::int64_t end = 0;
    std::int64_t n_after = 0;
    std::size_t row_bytes = 0;               // bytes of the hidden state of a token
    std::vector<std::size_t> after_bytes{};  // [layers]: bytes of the KV rows of n_after tokens

    [[nodiscard]] std::int64_t n_prefill_chunks() const;
    /// Returns the bytes of the hidden states of a prefill chunk.
    [[nodiscard]] std::size_t hidden_bytes(std::int64_t prefill_chunk) const;
    [[nodiscard]] std::uint64_t file_bytes() const;
    /// Returns how the file begins.
    [[nodiscard]] std::vector<std::byte> head() const;
};

/// What the head of a side file says.
struct PromptFileHead {
    std::uint64_t file_bytes = 0;
    std::int64_t begin = 0;  // as PromptState
    std::int64_t end = 0;
    std::int64_t n_after = 0;
    std::int64_t n_layers = 0;  // of the model
};

class PromptFile {
public:
    [[nodiscard]] static std::filesystem::path path_of(const std::filesystem::path& session);
    /// Removes the side file of a session, if there is one. Leaves a file of that name that is something else.
    static void remove(const std::filesystem::path& session);

    /// Returns the head of the side file of a session; no value if there is no side file, or its head is damaged.
    [[nodiscard]] static std::optional<PromptFileHead> read_head(const std::filesystem::path& session);
    /// Opens the side file of a session. Returns no value if there is none, or one that is not for `shape`, whose
    /// `begin` is read from the file. Throws IoError if the system refuses.
    [[nodiscard]] static std::optional<PromptFile> open(const std::filesystem::path& session, PromptFileShape shape);
    /// Creates the side file, in place of an old one, with room for all of it. Throws IoError, also if there is a file
    /// of that name that is something else.
    [[nodiscard]] static PromptFile create(const std::filesystem::path& session, const PromptFileShape& shape);

    [[nodiscard]] const PromptFileShape& shape() const { return shape_; }
    /// Returns the last state that was saved whole and of which `is_usable` is true; no value if there is none.
    [[nodiscard]] std::optional<PromptState> read_state(const std::function<bool(const PromptState&)>& is_usable);
    /// read_hidden() copies the hidden states of a prefill chunk to `out` [shape().hidden_bytes(prefill_chunk)], and
    /// read_rows_after() the KV rows of the tokens after the prompt in a layer to `out` [shape().after_bytes[layer]],
    /// both of the state that read_state() returned. They throw IoError.
    void read_hidden(std::int64_t prefill_chunk, std::byte* out) const;
    void read_rows_after(std::int64_t layer, std::byte* out) const;

    // Saving a state in place of the one before the last: both functions, in this order. They throw IoError; the last
    // state is then still there.

    /// Saves the KV rows of the tokens after the prompt, in the layers for which none are saved yet.
    void save_rows_after(const PromptState& state, const PromptReader& reader);
    /// Saves the hidden states, `rows(prefill_chunk)`, and then names the slot that has them. Starts with the prefill
    /// chunk whose hidden states the next step overwrites. Calls `on_read` for each prefill chunk that was read. May
    /// run on another thread while no other function is called.
    void save_hidden(const PromptState& state, const std::function<const std::byte*(std::int64_t prefill_chunk)>& rows,
                     const std::function<void(std::int64_t prefill_chunk)>& on_read);

private:
    struct Slot {
        std::uint64_t generation = 0;  // 0: none
        std::vector<std::int64_t> n_layers;
        std::vector<std::uint64_t> hashes;  // checksums of the hidden states
    };

    PromptFile(SideFile file, PromptFileShape shape);
    [[nodiscard]] std::size_t slot_head_bytes() const;
    [[nodiscard]] std::uint64_t slot_at(std::size_t slot) const;
    [[nodiscard]] std::uint64_t hidden_at(std::size_t slot, std::int64_t prefill_chunk) const;
    [[nodiscard]] std::uint64_t rows_at(std::int64_t layer) const;
    [[nodiscard]] std::vector<std::byte> encode(const Slot& slot) const;
    [[nodiscard]] Slot read_slot(std::size_t slot) const;
    [[nodiscard]] bool is_whole(std::size_t slot, const Slot& read) const;

    SideFile file_;
    PromptFileShape shape_;
    std::size_t slot_ = 0;           // the slot that was read or written last
    std::uint64_t generation_ = 0;   // of that slot
    std::int64_t n_rows_saved_ = 0;  // layers, from the first, whose rows_after are saved
};

}  // namespace slipstream
