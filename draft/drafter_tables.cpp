// Third part of SourcesDrafter: what is kept on disk.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "draft/sources_drafter.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr int kCalibrationVersion = 7;  // increase it if sources compute their estimates differently
// Names of the sections of a table file that hold calibrations, indexed by CalibrationKind.
constexpr std::array<std::string_view, 3> kCalibrationSections = {"calibration", "calibration under noise",
                                                                  "calibration blind to noise"};

}  // namespace

void SourcesDrafter::load() {
    const auto file = store_->load(fingerprint_);
    if (!file) return;
    try {
        for (const auto& source : sources_.tables)
            if (auto section = file->section(source->name())) source->load(*section);
        for (std::size_t kind = 0; kind < kCalibrationKinds; ++kind) {
            auto section = file->section(kCalibrationSections[kind]);
            // A saved calibration belongs to one list of sources. A drafter with another list starts without one.
            if (!section || section->text() != source_list()) continue;
            const auto state = section->f32s();
            section->finish();
            if (!builder_.calibration().restore(state)) section->fail("numbers of another version");
            kept_calibrations_[kind].assign(state.begin(), state.end());
        }
        use_calibration();
    } catch (const FormatError& error) {
        store_->set_aside(fingerprint_, error.what());
        reset();
    }
}

void SourcesDrafter::save() {
    if (!store_) return;
    std::vector<TableSection> sections;
    keep_calibration();
    const auto is_ours = [this](std::string_view name) {
        const auto kind = std::ranges::find(kCalibrationSections, name) - kCalibrationSections.begin();
        return sources_.find(name).has_value() || (std::cmp_less(kind, kCalibrationKinds) && used_calibrations_[kind]);
    };
    // Copies the sections of sources and calibrations that this drafter does not use from the present file, so that
    // saving does not remove them.
    if (const auto file = store_->load(fingerprint_))
        for (const std::string& name : file->section_names())
            if (!is_ours(name)) sections.push_back({name, file->section(name)->copy()});
    for (const auto& source : sources_.tables) {
        TableSection section{.name = std::string(source->name()), .fields = {}};
        source->save(section.fields);
        if (!section.fields.empty()) sections.push_back(std::move(section));
    }
    for (std::size_t kind = 0; kind < kCalibrationKinds; ++kind) {
        if (!used_calibrations_[kind]) continue;
        TableSection calibration{.name = std::string(kCalibrationSections[kind]), .fields = {}};
        calibration.fields.text(source_list());
        calibration.fields.f32s(kept_calibrations_[kind]);
        sections.push_back(std::move(calibration));
    }
    store_->save(fingerprint_, sections);
}

SourcesDrafter::CalibrationKind SourcesDrafter::calibration_kind() const {
    if (sampling_.temperature == 0.0) return CalibrationKind::Greedy;
    return noise_.present() ? CalibrationKind::Noisy : CalibrationKind::Blind;
}

void SourcesDrafter::keep_calibration() {
    const auto kind = static_cast<std::size_t>(calibration_kind());
    kept_calibrations_[kind] = builder_.calibration().state();
    used_calibrations_[kind] = true;
}

// Restores the builder's calibration for the present calibration_kind(); if nothing is known of that kind, the builder
// starts from the beginning.
void SourcesDrafter::use_calibration() {
    builder_.reset();
    const std::vector<float>& state = kept_calibrations_[static_cast<std::size_t>(calibration_kind())];
    CHECK(state.empty() || builder_.calibration().restore(state), "a calibration of {} numbers", state.size());
}

std::string SourcesDrafter::source_list() const {
    std::string list = fmt::format("{}:", kCalibrationVersion);
    for (const SourceFigures& figures : figures_) list += fmt::format("{},", figures.name);
    return list;
}

}  // namespace slipstream::draft
