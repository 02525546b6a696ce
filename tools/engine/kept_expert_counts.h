// How a mixture's tokens used its experts (runtime/experts/expert_use.h), kept in a file in the folder of the tables,
// one for each model: a start then fills slots of experts with those of the highest counts, and a plan knows their
// hits. What a file says changes no text. draft::TableStore keeps the file: it is replaced as a whole, and a damaged
// one is set aside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "draft/tables/table_file.h"
#include "draft/tables/table_store.h"
#include "runtime/experts/expert_use.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model_config.h"

namespace slipstream::tools {

/// Kind of the file, FINGERPRINT-experts.table, and name of its section.
inline constexpr std::string_view kExpertCountsKind = "experts";

/// Returns the section of a file for the model with this fingerprint; `use` is of each of its layers, of no experts
/// where nothing is known. Fields: u32 version, u64 fingerprint, u32 number of layers; then for each layer u64 tokens,
/// counts and ranks as f32 arrays, as ExpertUse has them.
[[nodiscard]] draft::TableSection expert_counts_section(std::uint64_t fingerprint, std::span<const ExpertUse> use);

/// What a section says, without a model to compare it with.
struct ReadExpertCounts {
    std::uint64_t fingerprint = 0;
    std::vector<ExpertUse> use;                    // [layers]
    [[nodiscard]] std::uint64_t n_tokens() const;  // of the layer with most
};
/// Reads a section. Throws FormatError if it is damaged.
[[nodiscard]] ReadExpertCounts read_expert_counts(draft::TableReader section);

/// The file of one model.
class KeptExpertCounts {
public:
    /// `files` must outlive this object. on_note gets a line if the file cannot be used, or written.
    KeptExpertCounts(const std::filesystem::path& folder, const ModelFiles& files,
                     std::function<void(std::string_view)> on_note);

    /// Returns the use of each layer; empty if there is no file, or if it cannot be used, with a note.
    [[nodiscard]] std::vector<ExpertUse> read() const;
    /// Replaces the file. `use`: of layers from the first on; those that are missing or of no experts keep what
    /// `before`, the result of read(), says of them. If that fails, gives a note.
    void write(std::span<const ExpertUse> use, std::span<const ExpertUse> before) const;

private:
    const ModelConfig* config_;
    std::uint64_t fingerprint_;
    std::function<void(std::string_view)> on_note_;
    draft::TableStore store_;
};

/// Returns ExpertUse::hits() of each layer; empty if there is no layer with hits.
[[nodiscard]] std::vector<std::vector<double>> counted_hits(std::span<const ExpertUse> use);

}  // namespace slipstream::tools
