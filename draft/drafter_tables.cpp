// What the drafter keeps on disk: the third part of SourcesDrafter.
#include <utility>

#include <fmt/format.h>

#include "draft/sources_drafter.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr std::string_view kCalibrationSection = "calibration";
constexpr int kCalibrationVersion = 2;  // of what estimates mean, before they are corrected

}  // namespace

void SourcesDrafter::load() {
    const auto file = store_->load(fingerprint_);
    if (!file) return;
    try {
        for (const auto& source : sources_.tables)
            if (auto section = file->section(source->name())) source->load(*section);
        if (auto section = file->section(kCalibrationSection)) {
            // Kept for one set of sources; another starts afresh.
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
    tell_rest();
    std::vector<TableSection> sections;
    // What other sources learnt in earlier runs stays.
    if (const auto file = store_->load(fingerprint_))
        for (const std::string& name : file->section_names())
            if (sources_.find(name) == nullptr && name != kCalibrationSection)
                sections.push_back({name, file->section(name)->copy()});
    for (const auto& source : sources_.tables) {
        TableSection section{.name = std::string(source->name()), .fields = {}};
        source->save(section.fields);
        if (!section.fields.empty()) sections.push_back(std::move(section));
    }
    TableSection calibration{.name = std::string(kCalibrationSection), .fields = {}};
    calibration.fields.text(source_list());
    calibration.fields.f32s(builder_.calibration().state());
    sections.push_back(std::move(calibration));
    store_->save(fingerprint_, sections);
}

std::string SourcesDrafter::source_list() const {
    std::string list = fmt::format("{}:", kCalibrationVersion);
    for (const SourceFigures& figures : figures_) list += fmt::format("{},", figures.name);
    return list;
}

}  // namespace slipstream::draft
