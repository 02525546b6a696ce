#include "runtime/session/session_lock.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

void lock_session(int descriptor, const std::filesystem::path& path, SessionUse use) {
    while (::flock(descriptor, (use == SessionUse::Read ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return;
        throw RequestError(
            fmt::format("{}: another program has this session open; wait for its end, or name another", path.string()));
    }
}

bool is_file_of_name(int descriptor, const std::filesystem::path& path) {
    struct stat opened {};
    struct stat named {};
    return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

}  // namespace slipstream
