// The plain driver of the fuzz targets: feeds each file named, or found under a folder named, to
// LLVMFuzzerTestOneInput, as libFuzzer does when it is given files. So every compiler replays the corpora in the
// ordinary test run, sanitizers or not. Exit code: 0 all inputs came back, 1 a path cannot be read or no input was
// found at all; a crash speaks for itself.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_under(const fs::path& path) {
    if (!fs::is_directory(path)) return {path};
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
}

std::vector<std::uint8_t> content_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(fmt::format("cannot read {}; name files or folders that exist", path.string()));
    // An exact-size copy on the heap: a read past the end is then AddressSanitizer's to see.
    std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    bytes.shrink_to_fit();
    return bytes;
}

/// Feeds all inputs, the empty one first; returns how many files there were.
std::size_t replay(std::span<char* const> paths) {
    std::size_t n_files = 0;
    LLVMFuzzerTestOneInput(nullptr, 0);
    for (const char* path : paths) {
        for (const fs::path& file : files_under(path)) {
            const std::vector<std::uint8_t> bytes = content_of(file);
            // The name comes before the call: it is what a crash leaves behind.
            fmt::print("{} ({} bytes)\n", file.string(), bytes.size());
            std::fflush(stdout);
            LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
            ++n_files;
        }
    }
    return n_files;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const std::size_t n_files = replay(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
        fmt::print("{} inputs replayed\n", n_files);
        if (n_files == 0) fmt::print(stderr, "no inputs: name corpus files or folders that hold some\n");
        return n_files == 0 ? 1 : 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
