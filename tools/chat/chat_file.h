// The file of a chat, which one program at a time may write. Owns the lock (session_lock.h). Each save replaces the
// file, so the lock moves on: the new file is locked before it takes the name, the old one is released afterwards. A
// program that opened the old file meanwhile sees that it has lost its name, and opens the new one.
#pragma once

#include <filesystem>
#include <optional>

#include "tools/chat/chat_session.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

class ChatFile {
public:
    /// Locks the file at `path`, which is made, empty, if it is missing. Throws RequestError if another program has it,
    /// IoError if it cannot be opened, is write-protected or is not a regular file.
    explicit ChatFile(std::filesystem::path path);
    ~ChatFile();  // removes a file that was made here and never saved to
    ChatFile(const ChatFile&) = delete;
    ChatFile& operator=(const ChatFile&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// The chat that the file holds, nothing if it is empty. Throws as load_chat_session().
    [[nodiscard]] std::optional<ChatSession> load(const ChatSettings& defaults) const;
    /// Replaces the file, whole or not at all. Throws IoError; RequestError if the file was removed meanwhile and
    /// another program has made one of its name.
    void save(const ChatSession& session);

private:
    void lock();

    std::filesystem::path path_;
    FileHandle file_;         // carries the lock
    bool is_unused_ = false;  // made here, and nothing is in it yet
};

}  // namespace slipstream::tools
