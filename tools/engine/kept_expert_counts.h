// How a mixture's tokens used its experts (runtime/experts/expert_use.h, distinct_experts.h), kept in a file in the
// folder of the tables, one for each model: a start then fills slots of experts with those of the highest counts, and a
// plan knows their hits, and how many experts a pass needs. What a file says changes no text. draft::TableStore keeps
// the file: it is replaced as a whole, and a damaged one is set aside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "draft/tables/table_file.h"
#include "draft/tables/table_store.h"
#include "runtime/experts/distinct_experts.h"
#include "runtime/experts/expert_use.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model_config.h"
#include "runtime/plan/expert_misses.h"

namespace slipstream::tools {

/// Kind of the file, FINGERPRINT-experts.table, and name of its section.
inline constexpr std::string_view kExpertCountsKind = "experts";

/// What is kept of a layer.
struct ExpertCountsOfLayer {
    ExpertUse use{};             // of no experts: nothing is known
    DistinctExperts distinct{};  // empty: nothing is known
};

/// Returns the section of a file for the model with this fingerprint; `layers` are all of its layers. Fields: u32
/// version, u64 fingerprint, u32 number of layers; then for each layer u64 tokens, counts and ranks as f32 arrays, as
/// ExpertUse has them; u32 number of sizes, and of each u64 groups, tokens and distinct experts, as DistinctExperts has
/// them. Version 1 has no sizes.
[[nodiscard]] draft::TableSection expert_counts_section(std::uint64_t fingerprint,
                                                        std::span<const ExpertCountsOfLayer> layers);

/// What a section says, without a model to compare it with.
struct ReadExpertCounts {
    std::uint64_t fingerprint = 0;
    std::vector<ExpertCountsOfLayer> layers;
    /// Returns the tokens of the layer with most: of its use, or of its groups of two or three.
    [[nodiscard]] std::uint64_t n_tokens() const;
};
/// Reads a section. Throws FormatError if it is damaged.
[[nodiscard]] ReadExpertCounts read_expert_counts(draft::TableReader section);

/// The file of one model.
class KeptExpertCounts {
public:
    /// `files` must outlive this object. on_note gets a line if the file cannot be used, or written.
    KeptExpertCounts(const std::filesystem::path& folder, const ModelFiles& files,
                     std::function<void(std::string_view)> on_note);

    /// Returns what is kept of each layer; empty if there is no file, or if it cannot be used, with a note.
    [[nodiscard]] std::vector<ExpertCountsOfLayer> read() const;
    /// Replaces the file. `before` is the result of read(). `use`: of layers from the first on; those that are missing
    /// or of no experts keep what `before` says of them. `distinct`: what was counted since read(), of layers from the
    /// first on; it is added. If that fails, gives a note.
    void write(std::span<const ExpertUse> use, std::span<const DistinctExperts> distinct,
               std::span<const ExpertCountsOfLayer> before) const;

private:
    const ModelConfig* config_;
    std::uint64_t fingerprint_;
    std::function<void(std::string_view)> on_note_;
    draft::TableStore store_;
};

/// Returns ExpertUse::hits() and DistinctExperts::points() of each layer; empty if no layer has either.
[[nodiscard]] std::vector<CountedExperts> counted_experts(std::span<const ExpertCountsOfLayer> layers);

}  // namespace slipstream::tools
