// How often a tree that is drafted over a KV view has the target's token: what planning assumes for a model of which
// nothing is known, and what its earlier texts taught. Kept in a file in the folder of the tables, one for each model,
// which draft::TableStore keeps: it is replaced as a whole, and a damaged one is set aside. What a file says changes no
// text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "draft/tables/table_file.h"
#include "draft/tables/table_store.h"
#include "runtime/formats/model_files.h"
#include "runtime/view/view_builder.h"

namespace slipstream::tools {

/// Kind of the file, FINGERPRINT-view.table, and name of its section.
inline constexpr std::string_view kViewAcceptanceKind = "view";

/// Acceptance over a KV view: how often one of the children of an accepted node of a tree is the target's token. A
/// prior by type and size of the view, whose rejections are multiplied by one learnt factor. So what was learnt over
/// one view serves for views of other sizes.
class ViewAcceptance {
public:
    /// Returns the prior for a view of `view_tokens` of `text_tokens` tokens.
    [[nodiscard]] static double prior(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens);
    /// Returns the acceptance to expect: the prior if nothing was learnt.
    [[nodiscard]] double expected(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens) const;
    /// Returns the acceptance to expect of chains, which have only the view's first choices.
    [[nodiscard]] double expected_of_chain(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens) const;
    /// Returns the learnt factor; 1 if nothing was learnt.
    [[nodiscard]] double factor() const;

    /// Learns that of `n_tokens` accepted nodes (at least 0) with children that were drafted over a view of
    /// `view_tokens` of `text_tokens`, `n_rejected` had no child that is the target's token. Earlier tokens lose weight
    /// as later ones come. Learns nothing where the prior is not known from runs: of views of less than 6 % of the
    /// text, and of nine tenths or more, of which little is rejected by any model.
    void learn(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens, std::int64_t n_tokens,
               std::int64_t n_rejected);

    /// Returns the section of a file for the model with this fingerprint. Fields: u32 version, u64 fingerprint; f32
    /// tokens, rejected ones, and how many first choices the prior expects to be rejected.
    [[nodiscard]] draft::TableSection section(std::uint64_t fingerprint) const;
    /// Reads a section. Throws FormatError if it is damaged, or of a model with another `fingerprint`, if one is given.
    [[nodiscard]] static ViewAcceptance read(draft::TableReader section,
                                             std::optional<std::uint64_t> fingerprint = std::nullopt);

    /// Return the tokens that were learnt, the rejected ones, and how many the prior expects to be rejected; each
    /// weighed by its age.
    [[nodiscard]] double n_tokens() const { return n_tokens_; }
    [[nodiscard]] double n_rejected() const { return n_rejected_; }
    [[nodiscard]] double n_expected() const;

    /// Bounds of the factor: beyond them acceptances over pages of 25 % of the text would be above 0.99 or below 0.45,
    /// where a plan no longer depends on them.
    static constexpr double kLeastFactor = 0.3;
    static constexpr double kMostFactor = 20.0;

private:
    double n_tokens_ = 0.0;
    double n_rejected_ = 0.0;
    double n_first_choices_ = 0.0;  // how many of them the prior expects to be rejected
};

/// The file of one model.
class KeptViewAcceptance {
public:
    /// on_note gets a line if the file cannot be used, or written.
    KeptViewAcceptance(const std::filesystem::path& folder, const ModelFiles& files,
                       std::function<void(std::string_view)> on_note);

    /// Returns what is kept: nothing learnt if there is no file, or if it cannot be used, with a note.
    [[nodiscard]] ViewAcceptance read() const;
    /// Replaces the file. If that fails, gives a note, the first time.
    void write(const ViewAcceptance& acceptance);

private:
    std::uint64_t fingerprint_;
    std::function<void(std::string_view)> on_note_;
    draft::TableStore store_;
    bool has_failed_ = false;
};

}  // namespace slipstream::tools
