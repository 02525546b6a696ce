// Where chat templates are found in a model: fields, files and folders of a Hugging Face directory, keys of a GGUF
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "kernels/base/error.h"
#include "runtime/formats/chat_templates.h"
#include "runtime/formats/gguf_file.h"
#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> spelled(const std::vector<NamedChatTemplate>& templates) {
    std::vector<std::string> result;
    for (const NamedChatTemplate& known : templates) result.push_back(known.name + "=" + known.source);
    return result;
}

std::vector<std::string> found(const TempFolder& folder, const char* config = "{}") {
    return spelled(hf_chat_templates(folder.path(), nlohmann::json::parse(config)));
}

TEST(ChatTemplateFiles, OneTextOrAListOfNamedOnes) {
    const TempFolder folder;
    EXPECT_THAT(found(folder), IsEmpty());
    EXPECT_THAT(found(folder, R"({"chat_template": null})"), IsEmpty());
    EXPECT_THAT(found(folder, R"({"chat_template": "a"})"), ElementsAre("default=a"));
    EXPECT_THAT(
        found(folder, R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"},
                                                   {"name": 5, "template": "x"}, {"name": "rag"}, "y"]})"),
        ElementsAre("tool_use=t", "default=d"));
}

TEST(ChatTemplateFiles, FilesOfTheirOwnComeFirst) {
    const TempFolder folder;
    folder.write("chat_template.json", R"({"chat_template": "of the processor"})");
    EXPECT_THAT(found(folder), ElementsAre("default=of the processor"));
    EXPECT_THAT(found(folder, R"({"chat_template": "field"})"), ElementsAre("default=field"));
    folder.write("chat_template.jinja", "file");
    EXPECT_THAT(found(folder, R"({"chat_template": "field"})"), ElementsAre("default=file"));
    std::filesystem::create_directory(folder.path() / "additional_chat_templates");
    folder.write("additional_chat_templates/tool_use.jinja", "tools");
    folder.write("additional_chat_templates/rag.jinja", "rag");
    folder.write("additional_chat_templates/notes.txt", "no template");
    EXPECT_THAT(found(folder), ElementsAre("default=file", "rag=rag", "tool_use=tools"));
}

std::vector<std::string> in_gguf(const GgufWriter& writer) {
    const std::string bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(std::as_bytes(std::span(bytes)), "g");
    return spelled(gguf_chat_templates(file));
}

TEST(ChatTemplateFiles, KeysOfAGgufFile) {
    GgufWriter writer;
    EXPECT_THAT(in_gguf(writer), IsEmpty());
    writer.set("tokenizer.chat_template", "d");
    EXPECT_THAT(in_gguf(writer), ElementsAre("default=d"));
    writer.set("tokenizer.chat_template.tool_use", "t");
    writer.set("tokenizer.chat_templates", gguf_array({gguf_string("tool_use")}));
    EXPECT_THAT(in_gguf(writer), ElementsAre("default=d", "tool_use=t"));
    writer.set("tokenizer.chat_templates", gguf_array({gguf_string("rag")}));
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(in_gguf(writer)); }),
                HasSubstr("tokenizer.chat_templates names rag, which is missing"));
    writer.set("tokenizer.chat_templates", "rag");
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(in_gguf(writer)); }),
                HasSubstr("tokenizer.chat_templates is not an array of strings"));
}

}  // namespace
}  // namespace slipstream
