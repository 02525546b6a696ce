// Simulates a full disk, exact to the byte.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstddef>

namespace slipstream {

/// While this object lives, files of this process cannot grow beyond `bytes` bytes: a write beyond that fails with
/// EFBIG.
class FileLimit {
public:
    explicit FileLimit(std::size_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        signal(SIGXFSZ, handler_);
    }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;

private:
    sighandler_t handler_;
    rlimit before_{};
};

}  // namespace slipstream
