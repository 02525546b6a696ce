// Keeps tables between runs in one folder: one file per model for what was learnt, further files for what was computed
// from the model.
//
// A damaged file is set aside as NAME.damaged, with a note, and work starts without it: a table never prevents a pass.
// The folder is bounded: after each save the least recently used files are deleted until the rest fits. The
// modification time of a file is its last use; loading renews it. Only files with the store's own names are counted or
// deleted. Files are replaced as a whole (table_file.h): if two programs save at once, the tables of the last one stay.
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

/// Returns the fingerprint of the model that a store's file is for, from the file's name; nothing for any other file.
[[nodiscard]] std::optional<std::uint64_t> stored_fingerprint(std::string_view file_name);

struct TableStoreOptions {
    std::filesystem::path folder;  // created by the first save
    /// Most bytes of all files in the folder.
    std::size_t max_bytes = std::size_t{256} << 20;
    /// Gets one line for the user: a table was set aside, cannot be read, or is too large to be kept. May be empty.
    std::function<void(std::string_view)> on_note;
};

class TableStore {
public:
    explicit TableStore(TableStoreOptions options);

    /// Returns FINGERPRINT.table, the file of what was learnt with this model, or FINGERPRINT-KIND.table if `kind`
    /// ("bigram"; lower-case letters and digits, CHECKed) is not empty.
    [[nodiscard]] std::filesystem::path path(std::uint64_t fingerprint, std::string_view kind = {}) const;

    /// Opens the file of that model and kind. Returns nothing if there is none, if it is damaged (then it is set
    /// aside), or if it cannot be read; the last two give a note.
    [[nodiscard]] std::optional<TableFile> load(std::uint64_t fingerprint, std::string_view kind = {}) const;
    /// Replaces the file and bounds the folder; the new file is never deleted. Sections larger than the folder's bound
    /// are not written, with a note. Throws IoError.
    void save(std::uint64_t fingerprint, std::span<const TableSection> sections, std::string_view kind = {}) const;
    /// Renames the file to NAME.damaged, in place of an older one, and notes `why`. For readers that find a section
    /// damaged in a file that is otherwise sound.
    void set_aside(std::uint64_t fingerprint, std::string_view why, std::string_view kind = {}) const;

private:
    void note(std::string_view text) const;
    void set_aside(const std::filesystem::path& path, std::string_view why) const;
    void bound_folder(const std::filesystem::path& kept) const;

    TableStoreOptions options_;
};

}  // namespace slipstream::draft
