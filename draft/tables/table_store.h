// Where tables persist between runs: one folder, a file a model for what was learnt, more for what was built out of it.
//
// A file that cannot be used is set aside as NAME.damaged, with a note, and work starts afresh: tables never keep a
// text from being made. The folder is bounded: after each save the least recently used files go until it fits (a file's
// modification time is its last use; loading renews it). Only files that are named as ours are counted or removed.
// Files are replaced whole (table_file.h): of two programs that save at once, the last one's tables stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "draft/tables/table_file.h"
#include "runtime/formats/model_fingerprint.h"

namespace slipstream::draft {

/// The fingerprint of the model that a file of a store is for, by the file's name; nothing of any other file.
[[nodiscard]] std::optional<std::uint64_t> stored_fingerprint(std::string_view file_name);

struct TableStoreOptions {
    std::filesystem::path folder;  // made by the first save
    std::size_t max_bytes = std::size_t{256} << 20;
    /// What a user should know, one line: a table was set aside, or is too large to be kept. May be empty.
    std::function<void(std::string_view)> on_note;
};

class TableStore {
public:
    explicit TableStore(TableStoreOptions options);

    /// FINGERPRINT.table, what was learnt with this model; FINGERPRINT-KIND.table with a kind ("bigram"; lower-case
    /// letters and digits).
    [[nodiscard]] std::filesystem::path path(std::uint64_t fingerprint, std::string_view kind = {}) const;

    /// The file of that model and kind; nothing where there is none, or none that can be used: then it was set aside
    /// and a note given.
    [[nodiscard]] std::optional<TableFile> load(std::uint64_t fingerprint, std::string_view kind = {}) const;
    /// Replaces the file and bounds the folder. Sections larger than the whole folder may be are not written, with a
    /// note. Throws IoError.
    void save(std::uint64_t fingerprint, std::span<const TableSection> sections, std::string_view kind = {}) const;
    /// Renames the file to NAME.damaged, in place of an older one, and notes `why`: for readers of a section that find
    /// it damaged though the file is whole.
    void set_aside(std::uint64_t fingerprint, std::string_view why, std::string_view kind = {}) const;

private:
    void note(std::string_view text) const;
    void set_aside(const std::filesystem::path& path, std::string_view why) const;
    void bound_folder(const std::filesystem::path& kept) const;

    TableStoreOptions options_;
};

}  // namespace slipstream::draft
