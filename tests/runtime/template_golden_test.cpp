// Templates against what the reference engine makes of them, set up as transformers sets it up: probes of single
// features, random expressions and programs, our families, and the templates of real models
// (../shared/data/chat_templates, not part of the project) with 22 conversations, three sets of tools and four of
// options (tests/golden/templates, with the scripts that made them).
#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/text/chat/choose_template.h"
#include "tests/runtime/template_goldens.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;

TEST(TemplateGolden, ProbesOfSingleFeatures) {
    const OrderedJson golden = template_golden("probes.json");
    const TemplateInputs inputs = inputs_with(member(template_golden_value("probes.json"), "variables"));
    EXPECT_GE(golden.at("cases").size(), 250U);
    for (const OrderedJson& row : golden.at("cases")) {
        const auto source = row[0].get<std::string>();
        SCOPED_TRACE(source);
        const Rendering rendering = rendering_of(source, inputs);
        if (row[1].is_null()) {
            EXPECT_NE(rendering.error, "") << "the reference refuses it: " << row[3] << "\ngave: " << rendering.text;
            EXPECT_EQ(rendering.line, row[2].get<int>()) << rendering.error;
        } else {
            EXPECT_EQ(rendering.error, "");
            EXPECT_EQ(rendering.text, row[1].get<std::string>());
        }
    }
}

void expect_rows(const std::string& file, std::size_t at_least) {
    const OrderedJson golden = template_golden(file);
    const TemplateInputs inputs = inputs_with(member(template_golden_value(file), "variables"));
    EXPECT_GE(golden.at("cases").size(), at_least);
    for (const OrderedJson& row : golden.at("cases")) {
        const auto source = row[0].get<std::string>();
        const Rendering rendering = rendering_of(source, inputs);
        if (row[1].is_null()) {
            EXPECT_NE(rendering.error, "")
                << source << "\nis refused by Jinja: " << row[2] << "\ngave: " << rendering.text;
        } else {
            EXPECT_EQ(rendering.error, "") << source;
            EXPECT_EQ(rendering.text, row[1].get<std::string>()) << source;
        }
    }
}

TEST(TemplateGolden, RandomExpressions) {
    expect_rows("expressions.json", 990);
}

TEST(TemplateGolden, RandomPrograms) {
    expect_rows("programs.json", 200);
}

// The inputs of the templates of models, in the order of make_models.py.
struct ModelInputs {
    std::vector<std::string> names;
    std::vector<TemplateInputs> inputs;
};

ModelInputs model_inputs() {
    const TemplateValue golden = template_golden_value("models.json");
    const auto items = [&](std::string_view name) -> const auto& {
        return member(golden, name).dict().items();
    };
    ModelInputs made;
    for (const auto& [talk, messages] : items("talks"))
        for (const auto& [tools, schemas] : items("tools"))
            for (const auto& [options, variables] : items("options")) {
                TemplateInputs inputs = inputs_with(member(golden, "tokens"));
                inputs.messages = messages;
                inputs.tools = schemas;
                add_arguments(variables, inputs);
                made.names.push_back(fmt::format("{} / {} / {}", talk.view(), tools.view(), options.view()));
                made.inputs.push_back(std::move(inputs));
            }
    return made;
}

std::string hashed(std::string_view text) {
    std::uint64_t value = 0xCBF29CE484222325;
    for (const char byte : text) value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
    return fmt::format("{:08x}", value >> 32U ^ (value & 0xFFFFFFFFU));
}

// As make_models.py spells it: with the message where raise_exception spoke, else without.
std::string outcome(const ChatTemplate& chat_template, const TemplateInputs& inputs, bool with_message) {
    try {
        return "text:" + chat_template.render(inputs).bytes;
    } catch (const TemplateError& error) {
        return with_message ? fmt::format("error:{}:{}", error.line(), error.message())
                            : fmt::format("refused:{}", error.line());
    }
}

std::map<std::string, std::vector<std::string>> model_hashes() {
    std::map<std::string, std::vector<std::string>> hashes;
    std::istringstream file(file_text(template_golden_path("models.txt")));
    std::string name;
    for (std::string word; file >> word;) {
        if (word == "=")
            file >> name;
        else
            hashes[name].push_back(word);
    }
    return hashes;
}

std::string template_path(const std::string& name) {
    const std::string folder = std::string(SLIPSTREAM_SOURCE_DIR) + "/../shared/data/chat_templates/";
    const std::string path = folder + name + ".jinja";
    return fs::exists(path) ? path : folder + "more/" + name + ".jinja";
}

// "family.NAME" is one of ours.
std::string family_source(const std::string& name) {
    return std::string(find_template_family(name.substr(name.find('.') + 1))->source);
}

class TemplateModels : public testing::TestWithParam<std::string> {};

TEST_P(TemplateModels, RendersAsTheReferenceDoes) {
    const bool is_ours = GetParam().starts_with("family.");
    const std::string path = template_path(GetParam());
    if (!is_ours && !fs::exists(path)) GTEST_SKIP() << "no " << path;
    static const ModelInputs cases = model_inputs();
    const ChatTemplate chat_template =
        ChatTemplate::parse(is_ours ? family_source(GetParam()) : file_text(path), GetParam());
    const std::vector<std::string> expected = model_hashes().at(GetParam());
    ASSERT_EQ(expected.size(), cases.inputs.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::string got = outcome(chat_template, cases.inputs[i], true);
        if (hashed(got) == expected[i]) continue;
        EXPECT_EQ(hashed(outcome(chat_template, cases.inputs[i], false)), expected[i]) << cases.names[i] << "\n" << got;
    }
}

std::vector<std::string> model_names() {
    std::vector<std::string> names;
    for (const auto& [name, hashes] : model_hashes()) names.push_back(name);
    return names;
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
