// What table files hold, for `tables inspect`: one file, or all of a folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "draft/tables/table_file.h"
#include "tools/base/json_object.h"
#include "tools/machine/model_stores.h"

namespace slipstream::tools {

struct SectionFacts {
    std::string name;
    std::size_t bytes = 0;
    std::string what;  // "learnt by the source cacheback"; of kinds that are known
    struct Figure {
        std::string name;  // "n_leaders"
        std::uint64_t value;
    };
    std::vector<Figure> figures;
};

struct TableFacts {
    std::filesystem::path path;
    std::size_t bytes = 0;
    std::string model;   // name of the model that it is for; empty: of none that is known
    std::string damage;  // why it cannot be used; empty: it can
    std::vector<SectionFacts> sections;
};

/// Reads the whole file, whose checksums are checked. Throws IoError, FormatError.
[[nodiscard]] TableFacts inspect_table(const std::filesystem::path& path);
/// Every *.table of a folder, and what was set aside there (*.table.damaged), by name; damaged ones tell why. Throws
/// IoError.
[[nodiscard]] std::vector<TableFacts> inspect_tables(const std::filesystem::path& folder);

/// Sets TableFacts::model of tables out of a store, which are named after their model, as far as these are the models.
/// A model that cannot be opened is passed over.
void name_models(std::vector<TableFacts>& tables, const std::vector<FoundModel>& models);

[[nodiscard]] std::string listing_text(const std::vector<TableFacts>& tables);
[[nodiscard]] std::vector<JsonObject> listing_json(const std::vector<TableFacts>& tables);

}  // namespace slipstream::tools
