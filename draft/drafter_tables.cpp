// Third part of SourcesDrafter: what is kept on disk.
#include <utility>

#include <fmt/format.h>

#include "draft/sources_drafter.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr int kCalibrationVersion = 5;  // increase it if sources compute their estimates differently
constexpr std::string_view kGreedyCalibration = "calibration";
constexpr std::string_view kNoisyCalibration = "calibration under noise";
constexpr std::string_view kBlindCalibration = "calibration blind to noise";

}  // namespace

void SourcesDrafter::load() {
    const auto file = store_->load(fingerprint_);
    if (!file) return;
    try {
        for (const auto& source : sources_.tables)
            if (auto section = file->section(source->name())) source->load(*section);
        if (auto section = file->section(calibration_section())) {
            // The calibration is kept for one set of sources; another set starts without one.
            if (section->text() != source_list()) return;
            const auto state = section->f32s();
            section->finish();
            if (!builder_.calibration().restore(state)) section->fail("numbers of another version");
        }
    } catch (const FormatError& error) {
        store_->set_aside(fingerprint_, error.what());
        reset();
    }
}

void SourcesDrafter::save() {
    if (!store_) return;
    std::vector<TableSection> sections;
    // Keeps what other sources learnt in earlier runs.
    if (const auto file = store_->load(fingerprint_))
        for (const std::string& name : file->section_names())
            if (sources_.find(name) == nullptr && name != calibration_section())
                sections.push_back({name, file->section(name)->copy()});
    for (const auto& source : sources_.tables) {
        TableSection section{.name = std::string(source->name()), .fields = {}};
        source->save(section.fields);
        if (!section.fields.empty()) sections.push_back(std::move(section));
    }
    TableSection calibration{.name = std::string(calibration_section()), .fields = {}};
    calibration.fields.text(source_list());
    calibration.fields.f32s(builder_.calibration().state());
    sections.push_back(std::move(calibration));
    store_->save(fingerprint_, sections);
}

// The calibration with noise is kept apart from the one without: acceptance under noise says little about acceptance
// without it, and the bins of a draft model mean other things.
std::string_view SourcesDrafter::calibration_section() const {
    if (temperature_ == 0.0) return kGreedyCalibration;
    return noise_.present() ? kNoisyCalibration : kBlindCalibration;
}

std::string SourcesDrafter::source_list() const {
    std::string list = fmt::format("{}:", kCalibrationVersion);
    for (const SourceFigures& figures : figures_) list += fmt::format("{},", figures.name);
    return list;
}

}  // namespace slipstream::draft
