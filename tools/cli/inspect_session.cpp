#include "tools/cli/inspect_session.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "offload/mapped_file.h"
#include "runtime/session/prompt_file.h"
#include "runtime/session/session_file.h"
#include "runtime/session/states_file.h"
#include "runtime/text/json_parser.h"
#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/base/kv_type_option.h"
#include "tools/engine/engine.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/labelled_lines.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMagicBytes = 8;  // that is_session() compares: a session's mark, "SLPSESSN", without the version
constexpr std::string_view kChatFormat = "slipstream chat";

bool is_session(std::span<const std::byte> bytes) {
    const auto head = session_head(kSessionVersion);
    return bytes.size() >= kMagicBytes && std::memcmp(bytes.data(), head.data(), kMagicBytes) == 0;
}

std::uint64_t file_bytes(const fs::path& path) {
    std::error_code error;
    const std::uintmax_t n = fs::file_size(path, error);
    return error ? 0 : n;
}

// A session, read without changing it.
struct SessionFindings {
    fs::path path;
    std::uint64_t bytes = 0;
    SessionContents contents;
    std::int64_t kv_chunks = 0;  // KV chunks, from the first on, that are saved in all layers
    std::uint64_t kv_bytes = 0;
    std::optional<PromptFileHead> side;
    std::optional<StatesFileFindings> states;

    [[nodiscard]] std::int64_t n_prompt() const { return std::ssize(contents.begin.prompt); }
};

SessionFindings find_session(const fs::path& path) {
    SessionFindings found{.path = path, .bytes = file_bytes(path)};
    const MappedFile file(path);
    found.contents = read_session(file.bytes(), path.string());
    const SessionBegin& begin = found.contents.begin;
    const std::int64_t n_with_kv = std::ranges::count_if(begin.kv_bytes, [](std::uint64_t n) { return n > 0; });
    std::vector<std::int64_t> n_layers;  // [chunks]: layers in which each is saved
    for (const SessionRecord& record : found.contents.kv_chunks) {
        if (record.payload.empty()) continue;
        const auto chunk = static_cast<std::size_t>(record.index >> 32);
        if (chunk >= n_layers.size()) n_layers.resize(chunk + 1);
        ++n_layers[chunk];
        found.kv_bytes += record.payload.size();
    }
    while (found.kv_chunks < std::ssize(n_layers) && n_layers[found.kv_chunks] == n_with_kv) ++found.kv_chunks;
    found.contents.kv_chunks.clear();  // they point into `file`, which is closed here
    found.side = PromptFile::read_head(path);
    found.states = StatesFile::inspect(path, begin, found.n_prompt() + std::ssize(found.contents.tokens));
    return found;
}

std::string split_of(const SessionBegin& begin) {
    if (!begin.split) return "any";
    return fmt::format("{} {}", begin.split->kind == SplitKind::Tensor ? "tensor" : "layers",
                       fmt::join(begin.split->parts, ","));
}

std::string side_text(const SessionFindings& found) {
    return fmt::format("{}: hidden states of the prompt's tokens from {} on, {}",
                       printable(PromptFile::path_of(found.path).string(), std::string::npos), found.side->begin,
                       size_text(found.side->file_bytes));
}

// Returns why the states cannot be used; empty: they can.
std::string_view damage_of(const StatesFileFindings& states) {
    switch (states.condition) {
        case StatesCondition::Good:
            return "";
        case StatesCondition::OfAnotherSession:
            return "of another session";
        case StatesCondition::Damaged:
            return "damaged";
    }
    return "";
}

std::string states_text(const SessionFindings& found) {
    const std::string path = printable(StatesFile::path_of(found.path).string(), std::string::npos);
    const std::string size = size_text(found.states->file_bytes);
    if (const std::string_view damage = damage_of(*found.states); !damage.empty())
        return fmt::format("{}: {}, {}", path, damage, size);
    return fmt::format("{}: states of recurrent layers after {}, {}", path, counted(found.states->position, "token"),
                       size);
}

void add_session(LabelledLines& out, const SessionFindings& found) {
    const SessionBegin& begin = found.contents.begin;
    out.add("session", fmt::format("{}, version {}, {}", printable(found.path.string(), std::string::npos),
                                   begin.version, size_text(found.bytes)));
    out.add("model", printable(begin.model_path, std::string::npos));
    out.add("computed on",
            fmt::format("{} ({}), split: {}, by version {}", printable(begin.device_kind),
                        printable(begin.instruction_form), split_of(begin), printable(begin.program_version)));
    out.add("context", counted(begin.context_tokens, "token"));
    out.add("prompt", counted(found.n_prompt(), "token"));
    out.add("generated", counted(std::ssize(found.contents.tokens), "token"));
    out.add("kv cache", fmt::format("{}, {} in all layers, {}", kv_type_option(begin.kv_dtype),
                                    counted(found.kv_chunks * kChunkTokens, "token"), size_text(found.kv_bytes)));
    if (found.side) out.add("side file", side_text(found));
    if (found.states) out.add("states", states_text(found));
    if (!found.contents.damage.empty()) out.add("damage", found.contents.damage);
}

JsonObject json_of(const SessionFindings& found) {
    const SessionBegin& begin = found.contents.begin;
    JsonObject json;
    json.text("session", found.path.string())
        .integer("version", begin.version)
        .unsigned_integer("bytes", found.bytes)
        .text("model", begin.model_path)
        .text("device_kind", begin.device_kind)
        .text("instruction_form", begin.instruction_form)
        .text("split", split_of(begin))
        .integer("context_tokens", begin.context_tokens)
        .integer("prompt_tokens", found.n_prompt())
        .integer("generated_tokens", std::ssize(found.contents.tokens))
        .object("kv", JsonObject()
                          .text("type", kv_type_name(begin.kv_dtype))
                          .integer("tokens", found.kv_chunks * kChunkTokens)
                          .unsigned_integer("bytes", found.kv_bytes))
        .text("damage", found.contents.damage);
    if (found.side) {
        json.object("side_file", JsonObject()
                                     .text("path", PromptFile::path_of(found.path).string())
                                     .unsigned_integer("bytes", found.side->file_bytes)
                                     .integer("from_token", found.side->begin));
    } else {
        json.null("side_file");
    }
    if (found.states) {
        json.object("states_file", JsonObject()
                                       .text("path", StatesFile::path_of(found.path).string())
                                       .unsigned_integer("bytes", found.states->file_bytes)
                                       .integer("tokens", found.states->position)
                                       .text("damage", damage_of(*found.states)));
    } else {
        json.null("states_file");
    }
    return json;
}

std::string report_of(const SessionFindings& found, ReportLayout layout) {
    if (layout == ReportLayout::Json) return json_of(found).to_text(JsonLayout::Indented);
    LabelledLines out(stdout_columns());
    add_session(out, found);
    return out.text();
}

std::optional<SessionFindings> find_kept_prompt(const fs::path& chat) {
    const fs::path path = KeptPrompt::path_of(chat);
    std::error_code error;
    if (!fs::is_regular_file(path, error) || !is_session(MappedFile(path).bytes())) return std::nullopt;
    return find_session(path);
}

std::string chat_report(const fs::path& path, const nlohmann::json& chat, ReportLayout layout) {
    const auto text_at = [&](const char* key) {
        const auto found = chat.find(key);
        return found != chat.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const auto messages = chat.find("messages");
    const std::size_t n_messages = messages != chat.end() && messages->is_array() ? messages->size() : 0;
    const bool is_answered = n_messages == 0 || !messages->back().is_object() ||
                             !messages->back().contains("content") || messages->back()["content"] != "";
    const std::optional<SessionFindings> kept = find_kept_prompt(path);
    if (layout == ReportLayout::Json) {
        JsonObject json;
        json.text("chat", path.string())
            .text("model", text_at("model"))
            .text("kv_type", text_at("kv_type"))
            .integer("exchanges", static_cast<std::int64_t>(n_messages / 2))
            .boolean("answered", is_answered);
        if (kept) {
            json.object("kept_prompt", json_of(*kept));
        } else {
            json.null("kept_prompt");
        }
        return json.to_text(JsonLayout::Indented);
    }
    LabelledLines out(stdout_columns());
    out.add("chat", fmt::format("{}, {}{}", printable(path.string(), std::string::npos),
                                counted(static_cast<std::int64_t>(n_messages / 2), "exchange"),
                                is_answered ? "" : ", the last one without an answer"));
    if (kept) {
        add_session(out, *kept);
    } else {
        out.add("model", printable(text_at("model"), std::string::npos));
        if (const std::string type = text_at("kv_type"); !type.empty()) out.add("kv cache", printable(type));
    }
    return out.text();
}

}  // namespace

std::optional<std::string> session_report(const fs::path& path, ReportLayout layout) {
    std::error_code error;
    if (!fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return std::nullopt;
    const MappedFile file(path);
    if (is_session(file.bytes())) return report_of(find_session(path), layout);
    if (file.bytes().front() != std::byte{'{'}) return std::nullopt;
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    const nlohmann::json chat = parse_json_value(text);
    if (!chat.is_object() || !chat.contains("format") || chat["format"] != kChatFormat) return std::nullopt;
    return chat_report(path, chat, layout);
}

}  // namespace slipstream::tools
