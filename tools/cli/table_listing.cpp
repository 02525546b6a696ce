#include "tools/cli/table_listing.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "draft/drafter.h"
#include "draft/tables/corpus_file.h"
#include "draft/tables/frozen_table.h"
#include "draft/tables/table_store.h"
#include "kernels/base/error.h"
#include "runtime/formats/model_files.h"
#include "runtime/formats/model_fingerprint.h"
#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/engine/engine.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;
using draft::TableFile;
using draft::TableReader;

// Adds the first fields of a frozen table (frozen_table.h) to `facts`.
void add_frozen_figures(TableReader fields, SectionFacts& facts) {
    facts.what = "frozen table of cacheback (--frozen-table)";
    const std::uint64_t ll = fields.u32();
    const std::uint64_t fl = fields.u32();
    facts.figures = {{"ll", ll}, {"fl", fl}, {"vocab", fields.u64()}};
    static_cast<void>(fields.u64());  // skips the fingerprint of the tokenizer
    facts.figures.push_back({"n_leaders", fields.i32s().size() / std::max<std::uint64_t>(ll, 1)});
    static_cast<void>(fields.u32s());
    facts.figures.push_back({"n_followers", fields.i32s().size() / std::max<std::uint64_t>(fl, 1)});
}

// Adds the first fields of a corpus store (corpus_file.h) to `facts`.
void add_corpus_figures(TableReader fields, SectionFacts& facts) {
    facts.what = "corpus store (--corpus)";
    static_cast<void>(fields.u32());
    static_cast<void>(fields.u64());
    facts.figures.push_back({"vocab", fields.u64()});
    facts.figures.push_back({"n_documents", fields.u64()});
    static_cast<void>(fields.u32s());
    facts.figures.push_back({"n_tokens", fields.i32s().size()});
}

// Adds what a section of a mixture's counts says (engine/kept_expert_counts.h) to `facts`.
void add_expert_figures(TableReader fields, SectionFacts& facts) {
    facts.what = "experts that texts chose";
    const ReadExpertCounts read = read_expert_counts(std::move(fields));
    facts.figures = {{"n_layers", read.layers.size()}, {"n_tokens", read.n_tokens()}};
}

// Adds what a section says of drafts over a KV view (engine/view_acceptance.h) to `facts`.
void add_view_figures(TableReader fields, SectionFacts& facts) {
    facts.what = "acceptance over a KV view";
    const ViewAcceptance read = ViewAcceptance::read(std::move(fields));
    const auto rounded = [](double count) { return static_cast<std::uint64_t>(std::llround(count)); };
    facts.figures = {{"n_tokens", rounded(read.n_tokens())},
                     {"n_rejected", rounded(read.n_rejected())},
                     {"n_expected", rounded(read.n_expected())}};
}

SectionFacts section_facts(const TableFile& file, const std::string& name) {
    const TableReader fields = file.section(name).value();
    SectionFacts facts{.name = name, .bytes = fields.copy().bytes().size(), .what = "", .figures = {}};
    if (name == draft::kFrozenTableSection) {
        add_frozen_figures(fields, facts);
    } else if (name == draft::kCorpusSection) {
        add_corpus_figures(fields, facts);
    } else if (name == kExpertCountsKind) {
        add_expert_figures(fields, facts);
    } else if (name == kViewAcceptanceKind) {
        add_view_figures(fields, facts);
    } else if (draft::find_source(name)) {
        facts.what = fmt::format("of the source {}", name);
    } else if (name.starts_with("calibration")) {
        facts.what = "acceptance of draft tokens";
    }
    return facts;
}

bool is_table(const fs::path& path) {
    return path.extension() == ".table" || path.filename().string().ends_with(".table.damaged");
}

}  // namespace

TableFacts inspect_table(const fs::path& path) {
    const TableFile file(path);
    TableFacts facts{.path = path, .bytes = file.total_bytes(), .model = "", .damage = "", .sections = {}};
    for (const std::string& name : file.section_names()) facts.sections.push_back(section_facts(file, name));
    return facts;
}

std::vector<TableFacts> inspect_tables(const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (is_table(at->path())) paths.push_back(at->path());
    if (error) throw IoError(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
    std::ranges::sort(paths);
    std::vector<TableFacts> tables;
    for (const fs::path& path : paths) {
        try {
            tables.push_back(inspect_table(path));
        } catch (const Error& damage) {
            std::error_code unknown;
            const std::uintmax_t bytes = fs::file_size(path, unknown);
            tables.push_back({.path = path,
                              .bytes = unknown ? 0 : static_cast<std::size_t>(bytes),
                              .model = "",
                              .damage = damage.what(),
                              .sections = {}});
        }
    }
    return tables;
}

void name_models(std::vector<TableFacts>& tables, const std::vector<FoundModel>& models) {
    std::multimap<std::uint64_t, TableFacts*> nameless;
    for (TableFacts& table : tables)
        if (const auto fingerprint = draft::stored_fingerprint(table.path.filename().string()))
            nameless.emplace(*fingerprint, &table);
    for (const FoundModel& model : models) {
        if (nameless.empty()) return;
        throw_if_interrupted();
        try {
            const auto [first, last] = nameless.equal_range(model_fingerprint(*ModelFiles::open(model.path)));
            for (auto at = first; at != last; ++at) at->second->model = full_name(model);
            nameless.erase(first, last);
        } catch (const std::exception&) {
            continue;
        }
    }
}

std::string listing_text(const std::vector<TableFacts>& tables) {
    std::string text;
    for (const TableFacts& table : tables) {
        text += fmt::format("{}  {}{}\n", table.path.string(), size_text(table.bytes),
                            table.model.empty() ? "" : fmt::format(", for {}", printable(table.model)));
        if (!table.damage.empty()) text += fmt::format("  cannot be used: {}\n", table.damage);
        for (const SectionFacts& section : table.sections) {
            text += fmt::format("  {:>10}  {}", size_text(section.bytes), printable(section.name));
            if (!section.what.empty()) text += fmt::format(": {}", section.what);
            for (const auto& figure : section.figures) text += fmt::format(", {} {}", figure.name, figure.value);
            text += "\n";
        }
    }
    return text;
}

std::vector<JsonObject> listing_json(const std::vector<TableFacts>& tables) {
    std::vector<JsonObject> objects;
    for (const TableFacts& table : tables) {
        JsonObject& object = objects.emplace_back();
        object.text("path", table.path.string()).unsigned_integer("bytes", table.bytes);
        if (table.model.empty()) {
            object.null("model");
        } else {
            object.text("model", table.model);
        }
        if (table.damage.empty()) {
            object.null("damage");
        } else {
            object.text("damage", table.damage);
        }
        std::vector<JsonObject> sections;
        for (const SectionFacts& section : table.sections) {
            JsonObject& entry = sections.emplace_back();
            entry.text("name", section.name).unsigned_integer("bytes", section.bytes).text("what", section.what);
            for (const auto& figure : section.figures) entry.unsigned_integer(figure.name, figure.value);
        }
        object.objects("sections", sections);
    }
    return objects;
}

}  // namespace slipstream::tools
