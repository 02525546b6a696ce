// Fuzz target: any bytes as a generated answer. The first byte chooses the form, whether a thought is open and how the
// rest is divided. Whatever the answer is: how it is divided changes nothing, only white space and marks that were
// understood are missing from what is read, and the arguments of each call are a JSON object.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/answer/json_object_scanner.h"
#include "runtime/text/chat/chat_template.h"

namespace {

using slipstream::AnswerForm;
using slipstream::AnswerPiece;
using slipstream::AnswerReader;
using slipstream::OfferedTools;
using Kind = AnswerPiece::Kind;

constexpr std::array<std::string_view, 10> kTemplates = {"</think>",
                                                         "<tool_call></think>",
                                                         "<tool_call><function=f><parameter=p></think>",
                                                         "<|python_tag|>",
                                                         "[TOOL_CALLS][ARGS][THINK]",
                                                         "<|tool_call|>",
                                                         "<|channel>thought<|tool_call>call:",
                                                         "<|start|><|channel|><|message|>",
                                                         "to=self<|message|><atem:invoke",
                                                         "<|tool_call|></think><response></response>"};

void require(bool holds) {
    if (!holds) std::abort();
}

OfferedTools tools() {
    static const OfferedTools kTools = {
        {.name = "f",
         .parameters = slipstream::parse_template_json(
             R"({"properties": {"n": {"type": "integer"}, "o": {"anyOf": [{"type": "object"}, {"type": "null"}]},
                 "l": {"type": ["array", "boolean", "number"]}, "s": {"type": "string"}}})",
             "schema")},
        {.name = "g"}};
    return kTools;
}

void add(std::vector<AnswerPiece>& all, const std::vector<AnswerPiece>& more) {
    for (const AnswerPiece& piece : more) {
        require(piece.kind == Kind::Call || !piece.text.empty());
        if (piece.kind != Kind::Call && !all.empty() && all.back().kind == piece.kind) {
            all.back().text += piece.text;
        } else {
            all.push_back(piece);
        }
    }
}

std::vector<AnswerPiece> read(const AnswerForm& form, const OfferedTools& offered, AnswerReader::Start start,
                              std::string_view answer, std::size_t part) {
    AnswerReader reader(form, offered, start);
    std::vector<AnswerPiece> all;
    for (std::size_t at = 0; at < answer.size(); at += part) add(all, reader.push(answer.substr(at, part)));
    add(all, reader.finish());
    return all;
}

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Removes white space.
std::string dense(std::string_view text) {
    std::string rest;
    for (const char c : text)
        if (!is_space(c)) rest += c;
    return rest;
}

// Requires that `answer`, in the harmony format, is `text` (the pieces that were read, the arguments of calls among
// them) but for headers, marks after calls, a header that is cut off at the end, and white space.
void require_only_headers_are_missing(std::string_view answer, std::string_view text, bool begins_with_header,
                                      bool has_calls) {
    // The groups are the recipients; a function without a name is none.
    static const std::string kName = R"((to=(?!functions\.[ \t\r\n<])[^ \t\r\n<]+)[ \t\r\n]*)";
    static const std::string kTo = "(?:" + kName + ")?";
    static const std::string kChannel = R"(<\|channel\|>(?:analysis|commentary|final)(?![^ \t\r\n<])[ \t\r\n]*)" + kTo +
                                        R"((?:<\|constrain\|>)?[^ \t\r\n<]*[ \t\r\n]*)";
    static const std::string kStart = R"(<\|start\|>(?:assistant(?![^ \t\r\n<]))?[ \t\r\n]*)";
    static const std::string kMessage = R"(<\|message\|>)";
    static const std::regex kFirst(R"([ \t\r\n]*(?:)" + kStart + ")?" + kTo + "(?:" + kChannel + ")?" + kMessage);
    static const std::regex kNext(R"((?:<\|end\|>[ \t\r\n]*)?(?:(?:)" + kStart + kTo + ")?" + kChannel + "|" + kStart +
                                  kName + ")" + kMessage);
    static const std::string kCutTo = R"((?:to?|to=[^ \t\r\n<]*[ \t\r\n]*)?)";
    static const std::regex kCut(R"((?:<\|end\|>[ \t\r\n]*)?(?:<\|start\|>(?:a[sitan]*)?[ \t\r\n]*)" + kCutTo +
                                 R"()?(?:<\|channel\|>[a-z]*[ \t\r\n]*)" + kCutTo +
                                 R"((?:<\|constrain\|>)?[^ \t\r\n<]*[ \t\r\n]*)?(?:<[|a-z]*)?)");
    constexpr std::size_t kMostHeaderBytes = 512;
    std::size_t at = 0;
    const auto is_missing = [&](std::string_view part) {
        // A header that begins the answer is always understood; the same mark after it is text.
        const bool is_repeated = at == 0 && answer.substr(part.size()).starts_with(part);
        if (text.starts_with(part) && !is_repeated) return false;
        at += part.size();
        return true;
    };
    const auto is_missing_header = [&](const std::regex& form) {
        const std::string_view rest = answer.substr(at, kMostHeaderBytes);
        std::cmatch found;
        if (!std::regex_search(rest.data(), rest.data() + rest.size(), found, form,
                               std::regex_constants::match_continuous))
            return false;
        for (std::size_t group = 1; !has_calls && group < found.size(); ++group)
            if (found[group].matched) return false;
        return is_missing(rest.substr(0, static_cast<std::size_t>(found.length())));
    };
    // An answer that begins without a header begins with text; white space is text enough.
    bool may_be_mark = !begins_with_header || is_missing_header(kFirst) || answer.empty() || is_space(answer.front());
    while (at < answer.size()) {
        if (is_space(answer[at])) {
            ++at;
            continue;
        }
        while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
        if (may_be_mark && answer[at] == '<') {
            const std::string_view rest = answer.substr(at);
            const std::string_view mark = rest.substr(0, rest.find('>') + 1);
            const auto is_cut_off = [&] {
                return rest.size() <= kMostHeaderBytes && std::regex_match(rest.begin(), rest.end(), kCut);
            };
            if (text.empty() && (mark == "<|start|>" || mark == "<|end|>") && is_cut_off()) return;
            if (is_missing_header(kNext)) continue;
            if (has_calls && (mark == "<|call|>" || mark == "<|end|>") && is_missing(mark)) continue;
        }
        require(!text.empty() && text.front() == answer[at]);
        text.remove_prefix(1);
        ++at;
        may_be_mark = true;
    }
    require(dense(text).empty());
}

// Requires that `text`, the pieces that were read of `answer`, an answer without calls in the form of Muse Glimmer, is
// what remains of it if some headers, the ends of messages before them and white space are left out.
void require_only_muse_headers_are_missing(std::string_view answer, std::string_view text) {
    static const std::regex kHeader(
        R"((?:<\|eom\|>)?(?:<\|start\|>(?:assistant)?)?(?:to=(?:self|user))?<\|message\|>)");
    static const std::regex kCut(R"((?:<\|eom\|>)?(?:<\|start\|>(?:a[sitan]*)?)?(?:t(?:o(?:=[^<]*)?)?)?(?:<[|a-z]*)?)");
    const std::string whole = dense(answer), rest = dense(text);
    // The positions of `rest` that may be reached, by position of `whole`; sets, since a header may also be text.
    std::vector<std::set<std::size_t>> reached(whole.size() + 1);
    reached[0].insert(0);
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::cmatch header;
        const bool begins = (whole[at] == '<' || whole[at] == 't') &&
                            std::regex_search(whole.data() + at, whole.data() + whole.size(), header, kHeader,
                                              std::regex_constants::match_continuous);
        for (const std::size_t position : reached[at]) {
            if (position < rest.size() && rest[position] == whole[at]) reached[at + 1].insert(position + 1);
            if (begins) reached[at + static_cast<std::size_t>(header.length())].insert(position);
            if (position == rest.size() && whole.size() - at <= 512 &&
                std::regex_match(whole.data() + at, whole.data() + whole.size(), kCut))
                return;
        }
    }
    require(reached[whole.size()].contains(rest.size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const unsigned choice = data[0];
    const std::string_view answer(reinterpret_cast<const char*>(data) + 1, size - 1);
    const AnswerForm form = slipstream::choose_answer_form(kTemplates[choice % 16 % kTemplates.size()],
                                                           [](std::string_view) { return false; });
    const auto start = (choice & 64) != 0 ? AnswerReader::Start::Thought : AnswerReader::Start::Text;
    const std::vector<AnswerPiece> whole = read(form, tools(), start, answer, size);
    require(read(form, tools(), start, answer, 1) == whole);
    require(read(form, tools(), start, answer, 2 + choice % 13) == whole);

    bool has_calls = false, is_verbatim = true;  // control characters in arguments are escaped
    for (const AnswerPiece& piece : whole) {
        if (piece.kind != Kind::Call) continue;
        has_calls = true;
        is_verbatim = is_verbatim && answer.find(piece.text) != answer.npos;
        require(!piece.name.empty() && slipstream::is_json_object(piece.text));
    }
    std::string text;
    for (const AnswerPiece& piece : whole) text += piece.text;
    if (form.calls == slipstream::CallForm::Harmony) {
        if (is_verbatim) require_only_headers_are_missing(answer, text, start == AnswerReader::Start::Text, has_calls);
        return 0;
    }
    if (form.calls == slipstream::CallForm::Muse) {
        if (!has_calls) require_only_muse_headers_are_missing(answer, text);
        return 0;
    }
    if (has_calls) return 0;
    // Without a call only the two marks of one thought are missing, and those around the content.
    std::size_t n_missing = dense(answer).size() - dense(text).size();
    const std::size_t n_open = form.thoughts.open.size(), n_close = form.thoughts.close.size();
    const std::size_t n_begin = form.content.open.size(), n_end = form.content.close.size();
    bool is_right = false;
    for (const std::size_t content : {std::size_t{0}, n_begin, n_begin + n_end})
        for (const std::size_t thought : {std::size_t{0}, n_open, n_close, n_open + n_close})
            is_right = is_right || n_missing == thought + content;
    require(is_right);
    // Without tools and thoughts an answer is its content, byte by byte.
    const std::vector<AnswerPiece> plain = read({}, {}, AnswerReader::Start::Text, answer, size);
    require(answer.empty() ? plain.empty() : plain.size() == 1 && plain[0].text == answer);
    return 0;
}
