#include "tools/terminal/bounded_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

// Bytes of text allowed per token of context. The tokens of no text are longer on average (estimated).
constexpr std::size_t kMostBytesPerToken = 64;
// Lower bound of the size limit, in bytes: leaves room for white space if the context is short.
constexpr std::size_t kLeastLimit = std::size_t{1} << 20;
// Longest context, in tokens, for which the size limit grows; also assumed if the context length is unknown.
constexpr std::int64_t kLongestContext = std::int64_t{1} << 20;

}  // namespace

std::size_t most_text_bytes(std::optional<std::int64_t> context_tokens) {
    const auto tokens = static_cast<std::size_t>(std::min(context_tokens.value_or(kLongestContext), kLongestContext));
    return std::max(kLeastLimit, tokens * kMostBytesPerToken);
}

std::string read_text(const std::filesystem::path& path, std::string_view what, std::size_t most_bytes) {
    const bool is_stdin = path.empty() || path == "-";
    const std::string name = is_stdin ? std::string("stdin") : path.string();
    const auto too_much = [&] {
        throw RequestError(
            fmt::format("{} {}: more than {}; is it the right file?", what, name, size_text(most_bytes)));
    };
    FileHandle file;
    throw_if_interrupted();
    if (!is_stdin) {
        file = open_file(path, O_RDONLY);
        if (file.get() < 0) throw IoError(fmt::format("{} {}: cannot be opened: {}", what, name, std::strerror(errno)));
    }
    const int descriptor = is_stdin ? STDIN_FILENO : file.get();
    struct stat status {};
    if (fstat(descriptor, &status) == 0) {
        if (!is_stdin && !S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
            throw RequestError(fmt::format("{} {}: this is {}; a text comes from a file or a pipe", what, name,
                                           S_ISDIR(status.st_mode) ? "a folder" : "a device"));
        if (S_ISREG(status.st_mode) && static_cast<std::size_t>(status.st_size) > most_bytes) too_much();
    }
    std::string text;
    std::array<char, 65536> piece;
    for (;;) {
        const ssize_t n = read_some(descriptor, piece.data(), piece.size());
        throw_if_interrupted();
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw IoError(fmt::format("{} {}: cannot be read: {}", what, name, std::strerror(errno)));
        if (n == 0) return text;
        text.append(piece.data(), n);
        if (text.size() > most_bytes) too_much();
    }
}

}  // namespace slipstream::tools
