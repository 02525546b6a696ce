// The file of `generate --messages`: the body of a request for a chat completion, or its messages alone.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/request/conversation.h"

namespace slipstream::tools {

struct MessagesFile {
    RequestedConversation conversation;
    std::string ignored;  // names of the other fields, separated by commas: sampling, streaming, and the like

    [[nodiscard]] bool offers_tools() const;
};

/// Parses the text of the file, which messages call `name`. Throws RequestError if it is not JSON, too large, or
/// neither a list nor an object.
[[nodiscard]] MessagesFile parse_messages_file(std::string_view json, std::string_view name);

}  // namespace slipstream::tools
