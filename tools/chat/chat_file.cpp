#include "tools/chat/chat_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "runtime/session/session_lock.h"

namespace slipstream::tools {

namespace {

constexpr int kLockTries = 100;  // attempts to open and lock a file that is replaced each time; then IoError

}  // namespace

ChatFile::ChatFile(std::filesystem::path path) : path_(std::move(path)) {
    lock();
    remove_leftover_parts(path_);
}

ChatFile::~ChatFile() {
    if (is_unused_ && is_file_of_name(file_.get(), path_)) static_cast<void>(unlink(path_.c_str()));
}

void ChatFile::lock() {
    for (int i = 0; i < kLockTries; ++i) {
        if (is_write_protected(path_))
            throw IoError(fmt::format(
                "{}: the chat is write-protected; allow writing (chmod u+w), or read it by /load in another chat",
                path_.string()));
        FileHandle file =
            open_file(path_, O_RDWR | O_NONBLOCK | O_NOCTTY);  // some systems lock only files that are open for writing
        bool is_made = false;
        if (file.get() < 0 && errno == ENOENT) {
            file = open_file(path_, O_RDWR | O_CREAT | O_EXCL | O_NOCTTY, kOwnerOnlyMode);
            is_made = file.get() >= 0;
            // `path_` is a symbolic link to a file that does not exist: O_EXCL refuses it. The file is created, and
            // is_unused_ stays false, so that the destructor removes neither link nor file.
            if (!is_made && errno == EEXIST) file = open_file(path_, O_RDWR | O_CREAT | O_NOCTTY, kOwnerOnlyMode);
        }
        struct stat status {};
        if (file.get() < 0 || fstat(file.get(), &status) != 0)
            throw IoError(fmt::format("{}: cannot be opened: {}", path_.string(), std::strerror(errno)));
        if (!S_ISREG(status.st_mode))
            throw IoError(fmt::format("{}: a chat must be a regular file; name another", path_.string()));
        lock_session(file.get(), path_, SessionUse::GoOn);
        file_ = std::move(file);
        is_unused_ = is_made;
        if (is_file_of_name(file_.get(), path_)) return;
    }
    throw IoError(fmt::format("{}: another program keeps replacing this file; name another", path_.string()));
}

std::optional<ChatSession> ChatFile::load(const ChatSettings& defaults) const {
    struct stat status {};
    if (fstat(file_.get(), &status) == 0 && status.st_size == 0) return std::nullopt;
    return load_chat_session(path_, defaults);
}

void ChatFile::save(const ChatSession& session) {
    if (!is_file_of_name(file_.get(), path_)) lock();
    WholeFile whole(path_, kOwnerOnlyMode);
    whole.write(to_json_text(session));
    FileHandle replacement(
        fcntl(whole.descriptor(), F_DUPFD_CLOEXEC, 0));  // a duplicate shares the lock of its original
    if (replacement.get() < 0) whole.fail(errno);
    lock_session(replacement.get(), path_, SessionUse::GoOn);
    whole.complete();
    file_ = std::move(replacement);
    is_unused_ = false;
}

}  // namespace slipstream::tools
