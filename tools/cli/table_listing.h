// Lists the contents of table files for `tables inspect`: one file, or all files of a folder.
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
    std::string what;  // description of a known section: "of the source cacheback"; else empty
    struct Figure {
        std::string name;  // "n_leaders"
        std::uint64_t value;
    };
    std::vector<Figure> figures;
};

struct TableFacts {
    std::filesystem::path path;
    std::size_t bytes = 0;
    std::string model;   // name of the model that the table is for; empty: unknown
    std::string damage;  // why the file cannot be used; empty: it can
    std::vector<SectionFacts> sections;
};

/// Returns the contents of a table file; reads all of it and checks its checksums. Throws IoError, FormatError.
[[nodiscard]] TableFacts inspect_table(const std::filesystem::path& path);
/// Returns all *.table files of a folder and those that were set aside (*.table.damaged), sorted by name. A file that
/// cannot be used has `damage`. Throws IoError if the folder cannot be read.
[[nodiscard]] std::vector<TableFacts> inspect_tables(const std::filesystem::path& folder);

/// Sets TableFacts::model of tables whose file name contains the fingerprint of one of `models` (as draft::TableStore
/// names them). Skips models that cannot be opened. Throws Interrupted after a signal.
void name_models(std::vector<TableFacts>& tables, const std::vector<FoundModel>& models);

[[nodiscard]] std::string listing_text(const std::vector<TableFacts>& tables);
[[nodiscard]] std::vector<JsonObject> listing_json(const std::vector<TableFacts>& tables);

}  // namespace slipstream::tools
