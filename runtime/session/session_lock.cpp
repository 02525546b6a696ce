#include "runtime/session/session_lock.h"

#include <sys/file.h>

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

}  // namespace slipstream
