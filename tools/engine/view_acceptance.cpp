#include "tools/engine/view_acceptance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/model_fingerprint.h"

namespace slipstream::tools {

namespace {

constexpr std::uint32_t kVersion = 1;
// Tokens: larger counts are scaled down to this, so that later texts outweigh earlier ones.
constexpr double kMostTokens = 8192.0;
// Shares of the text that a view keeps between which runs are learnt from.
constexpr double kLeastShare = 0.06;
constexpr double kMostShare = 0.9;
// Rejections that the prior is worth: with as many expected ones, the factor is the mean of the measured one and 1. The
// prior expects them of 229 tokens over pages of 25 % of the text.
constexpr double kPriorRejections = 6.4;
// Fraction of the rejected first choices of a view where no runner-up in the tree is the target's token either: 0.27 to
// 0.4 in texts of SmolLM2-135M (draft/NOTES.md, "Streamed KV", sizes of views).
constexpr double kRejectedByTrees = 0.4;

// Acceptance of a view's first choice for a token whose parent is accepted, by the fraction of the text that the view
// keeps. Means over a book and code at temperature 0.6 of Qwen2.5-Coder-1.5B after 15,400 tokens:
//   6 and 25 %    512 positions each, standard errors 0.009 to 0.017 (runtime/NOTES.md, "KV views";
//                 runtime/measured/views_q4_qwen.json)
//   50 %          Pages: rejections times 0.85, as in an offline experiment with 512 positions each: 0.953 for 25 %,
//                 0.960 for 50 %. Trees of SmolLM2-135M had the same acceptance with both (draft/NOTES.md).
//   100 %         Pages by that experiment. Rows of all tokens are the KV itself.
// 12 % lies between two shares and was not measured.
struct ShareAcceptance {
    double share = 0.0;
    double acceptance = 0.0;
};
constexpr std::array kRowsAcceptance{ShareAcceptance{0.06, 0.877}, ShareAcceptance{0.25, 0.941},
                                     ShareAcceptance{1.0, 1.0}};
constexpr std::array kPagesAcceptance{ShareAcceptance{0.06, 0.870}, ShareAcceptance{0.25, 0.930},
                                      ShareAcceptance{0.5, 0.940}, ShareAcceptance{1.0, 0.986}};

// Returns the acceptance at `share`, linear between the logarithms of known shares, and constant outside them.
double acceptance_at(double share, std::span<const ShareAcceptance> known) {
    for (std::size_t i = 0; i < known.size(); ++i) {
        if (share > known[i].share) continue;
        if (i == 0) break;
        const ShareAcceptance& below = known[i - 1];
        const double part = std::log(share / below.share) / std::log(known[i].share / below.share);
        return below.acceptance + part * (known[i].acceptance - below.acceptance);
    }
    return share <= known.front().share ? known.front().acceptance : known.back().acceptance;
}

// Returns the fraction of first choices that the target rejects, over a view of `view_tokens` of `text_tokens` tokens.
double rejected_first_choices(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens) {
    const double share = static_cast<double>(view_tokens) / static_cast<double>(text_tokens);
    return 1.0 -
           (type == ViewType::Q4 ? acceptance_at(share, kPagesAcceptance) : acceptance_at(share, kRowsAcceptance));
}

}  // namespace

double ViewAcceptance::prior(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens) {
    return 1.0 - kRejectedByTrees * rejected_first_choices(type, view_tokens, text_tokens);
}

double ViewAcceptance::expected(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens) const {
    return std::max(1.0 - factor() * (1.0 - prior(type, view_tokens, text_tokens)), 0.0);
}

double ViewAcceptance::expected_of_chain(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens) const {
    return std::max(1.0 - factor() * rejected_first_choices(type, view_tokens, text_tokens), 0.0);
}

double ViewAcceptance::n_expected() const {
    return kRejectedByTrees * n_first_choices_;
}

double ViewAcceptance::factor() const {
    return std::clamp((n_rejected_ + kPriorRejections) / (n_expected() + kPriorRejections), kLeastFactor, kMostFactor);
}

void ViewAcceptance::learn(ViewType type, std::int64_t view_tokens, std::int64_t text_tokens, std::int64_t n_tokens,
                           std::int64_t n_rejected) {
    const double share = static_cast<double>(view_tokens) / static_cast<double>(text_tokens);
    if (share < kLeastShare || share > kMostShare) return;
    n_tokens_ += static_cast<double>(n_tokens);
    n_rejected_ += static_cast<double>(n_rejected);
    n_first_choices_ += static_cast<double>(n_tokens) * rejected_first_choices(type, view_tokens, text_tokens);
    const double kept = std::min(1.0, kMostTokens / std::max(n_tokens_, 1.0));
    for (double* count : {&n_tokens_, &n_rejected_, &n_first_choices_}) *count *= kept;
}

draft::TableSection ViewAcceptance::section(std::uint64_t fingerprint) const {
    draft::TableSection section{.name = std::string(kViewAcceptanceKind), .fields = {}};
    section.fields.u32(kVersion);
    section.fields.u64(fingerprint);
    for (const double count : {n_tokens_, n_rejected_, n_first_choices_}) section.fields.f32(static_cast<float>(count));
    return section;
}

ViewAcceptance ViewAcceptance::read(draft::TableReader section, std::optional<std::uint64_t> fingerprint) {
    if (const std::uint32_t version = section.u32(); version != kVersion)
        section.fail(fmt::format("acceptance of version {}, this program reads {}", version, kVersion));
    if (const std::uint64_t of_file = section.u64(); fingerprint && of_file != *fingerprint)
        section.fail("acceptance of another model");
    ViewAcceptance read;
    for (double* count : {&read.n_tokens_, &read.n_rejected_, &read.n_first_choices_}) *count = section.f32();
    section.finish();
    // Written so that NaN is refused. A little above the bounds: rounded to float.
    const double most = read.n_tokens_ * (1.0 + 1e-6);
    const bool is_sound = read.n_tokens_ >= 0.0 && read.n_tokens_ <= kMostTokens * (1.0 + 1e-6) &&
                          read.n_rejected_ >= 0.0 && read.n_rejected_ <= most && read.n_first_choices_ >= 0.0 &&
                          read.n_first_choices_ <= most;
    if (!is_sound) section.fail("the acceptance is damaged");
    return read;
}

KeptViewAcceptance::KeptViewAcceptance(const std::filesystem::path& folder, const ModelFiles& files,
                                       std::function<void(std::string_view)> on_note)
    : fingerprint_(model_fingerprint(files)),
      on_note_(std::move(on_note)),
      store_({.folder = folder, .on_note = on_note_}) {}

ViewAcceptance KeptViewAcceptance::read() const {
    const std::optional<draft::TableFile> file = store_.load(fingerprint_, kViewAcceptanceKind);
    if (!file) return {};
    try {
        const auto section = file->section(kViewAcceptanceKind);
        if (!section) throw FormatError(fmt::format("{}: no acceptance over a view in it", file->path().string()));
        return ViewAcceptance::read(*section, fingerprint_);
    } catch (const FormatError& error) {
        store_.set_aside(fingerprint_, error.what(), kViewAcceptanceKind);
        return {};
    }
}

void KeptViewAcceptance::write(const ViewAcceptance& acceptance) {
    try {
        store_.save(fingerprint_, std::vector{acceptance.section(fingerprint_)}, kViewAcceptanceKind);
    } catch (const IoError& error) {
        if (!std::exchange(has_failed_, true))
            on_note_(fmt::format("the acceptance over a view cannot be saved: {}", error.what()));
    }
}

}  // namespace slipstream::tools
