#include "draft/tables/table_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFingerprintDigits = 16;
// Age from which an unfinished file (.part) is deleted: the program that wrote it must have been killed.
constexpr auto kMaxPartAge = std::chrono::hours(1);

bool is_kind_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Returns true for FINGERPRINT[-KIND].table and for such a name followed by .damaged or .N-N.part.
bool is_ours(std::string_view name) {
    const std::size_t n_digits = std::min(name.find_first_not_of("0123456789abcdef"), name.size());
    if (n_digits != kFingerprintDigits) return false;
    name.remove_prefix(n_digits);
    if (name.starts_with("-")) {
        name.remove_prefix(1);
        name.remove_prefix(std::ranges::find_if_not(name, is_kind_letter) - name.begin());
    }
    return name == ".table" || name == ".table.damaged" || (name.starts_with(".table.") && name.ends_with(".part"));
}

// A file of the store, with the time of its last use.
struct StoredFile {
    fs::path path;
    std::size_t bytes;
    fs::file_time_type used;
};

// Lists the files of the store. Files that vanish meanwhile, or whose size or time cannot be read, are left out.
std::vector<StoredFile> stored_files(const fs::path& folder) {
    std::vector<StoredFile> files;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        std::error_code unknown;
        if (!is_ours(at->path().filename().string()) || !at->is_regular_file(unknown)) continue;
        const std::uintmax_t bytes = at->file_size(unknown);
        if (unknown) continue;
        const fs::file_time_type used = at->last_write_time(unknown);
        if (!unknown) files.push_back({at->path(), static_cast<std::size_t>(bytes), used});
    }
    return files;
}

std::size_t file_bytes(std::span<const TableSection> sections) {
    std::size_t n = 0;
    write_table_bytes(sections, [&](std::span<const std::byte> bytes) { n += bytes.size(); });
    return n;
}

// Makes the folder of the user's cache (slipstream/tables) private, in case that it exists and others may read it. A
// folder with another name, chosen by the user, keeps its mode.
void make_private(const fs::path& folder) {
    if (folder.filename() != "tables" || folder.parent_path().filename() != "slipstream") return;
    std::error_code refused;  // ignored: the folder may belong to another user, and its files are private anyway
    fs::permissions(folder, fs::perms::owner_all, refused);
}

}  // namespace

std::optional<std::uint64_t> stored_fingerprint(std::string_view file_name) {
    if (!is_ours(file_name)) return std::nullopt;
    std::uint64_t fingerprint = 0;
    std::from_chars(file_name.data(), file_name.data() + kFingerprintDigits, fingerprint, 16);
    return fingerprint;
}

TableStore::TableStore(TableStoreOptions options) : options_(std::move(options)) {}

fs::path TableStore::path(std::uint64_t fingerprint, std::string_view kind) const {
    CHECK(std::ranges::all_of(kind, is_kind_letter), "kind {}", kind);
    return options_.folder / fmt::format("{:016x}{}{}.table", fingerprint, kind.empty() ? "" : "-", kind);
}

void TableStore::note(std::string_view text) const {
    if (options_.on_note) options_.on_note(text);
}

void TableStore::set_aside(const fs::path& path, std::string_view why) const {
    fs::path aside = path;
    aside += ".damaged";
    std::error_code error;
    fs::rename(path, aside, error);
    note(error ? fmt::format("{} (cannot be set aside: {}); starting afresh", why, error.message())
               : fmt::format("{}; set aside as {}, starting afresh", why, aside.filename().string()));
}

void TableStore::set_aside(std::uint64_t fingerprint, std::string_view why, std::string_view kind) const {
    set_aside(path(fingerprint, kind), why);
}

std::optional<TableFile> TableStore::load(std::uint64_t fingerprint, std::string_view kind) const {
    const fs::path file = path(fingerprint, kind);
    std::error_code error;
    const fs::file_type type = fs::status(file, error).type();
    if (type == fs::file_type::not_found) return std::nullopt;
    try {
        TableFile table(file);
        fs::last_write_time(file, fs::file_time_type::clock::now(), error);  // if this fails, the file counts as unused
        return table;
    } catch (const FormatError& damage) {
        set_aside(file, damage.what());
    } catch (const IoError& refusal) {
        note(fmt::format("{}; going on without the table", refusal.what()));
    }
    return std::nullopt;
}

void TableStore::save(std::uint64_t fingerprint, std::span<const TableSection> sections, std::string_view kind) const {
    const fs::path file = path(fingerprint, kind);
    const std::size_t bytes = file_bytes(sections);
    if (bytes > options_.max_bytes) {
        note(fmt::format("{}: {} bytes of tables are not kept, the folder may hold {}", file.string(), bytes,
                         options_.max_bytes));
        return;
    }
    write_table_file(file, sections);
    make_private(options_.folder);
    bound_folder(file);
}

void TableStore::bound_folder(const fs::path& kept) const {
    std::vector<StoredFile> files = stored_files(options_.folder);
    std::ranges::sort(files, [](const StoredFile& a, const StoredFile& b) {
        return a.used != b.used ? a.used < b.used : a.path < b.path;
    });
    std::size_t total = 0;
    for (const StoredFile& file : files) total += file.bytes;
    const fs::file_time_type long_ago = fs::file_time_type::clock::now() - kMaxPartAge;
    for (const StoredFile& file : files) {
        const bool is_part = file.path.extension() == ".part";
        const bool is_left_over = is_part && file.used < long_ago;
        const bool is_in_the_way = !is_part && total > options_.max_bytes && file.path != kept;
        if (!is_left_over && !is_in_the_way) continue;
        std::error_code error;
        if (fs::remove(file.path, error)) total -= file.bytes;
    }
}

}  // namespace slipstream::draft
