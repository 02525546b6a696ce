// The file of a chat, which one process at a time may write. Owns the lock (session_lock.h). A save replaces the file,
// so each new file is locked before it gets the name, and the old file is unlocked afterwards. A process that opened
// the old file in between finds that the file no longer has the name, and opens the new one.
#pragma once

#include <filesystem>
#include <optional>

#include "tools/chat/chat_session.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

class ChatFile {
public:
    /// Locks the file at `path`; creates an empty file if there is none. Throws RequestError if another process holds
    /// the lock, IoError if the file cannot be opened, is write-protected or is not a regular file.
    explicit ChatFile(std::filesystem::path path);
    /// Removes the file if this object created it, no save() has succeeded since, and the path still names this file.
    ~ChatFile();
    ChatFile(const ChatFile&) = delete;
    ChatFile& operator=(const ChatFile&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// Returns the chat in the file, nullopt if the file is empty. Throws what load_chat_session() throws.
    [[nodiscard]] std::optional<ChatSession> load(const ChatSettings& defaults) const;
    /// Replaces the file atomically. Throws IoError; RequestError if the file was removed, and another process has
    /// created a new file under this path and holds its lock.
    void save(const ChatSession& session);

private:
    void lock();

    std::filesystem::path path_;
    FileHandle file_;         // holds the lock until it is closed
    bool is_unused_ = false;  // this object created the file, and it is still empty
};

}  // namespace slipstream::tools
