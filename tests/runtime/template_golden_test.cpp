// Our own templates, random expressions and programs, and what must be refused: byte for byte what Jinja makes of them
// when it is set up as transformers sets it up (tests/golden/templates, with the scripts that made them).
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/text/chat/choose_template.h"
#include "tests/runtime/template_goldens.h"

namespace slipstream {
namespace {

// The cases of a golden file: all of conversations.py, or the one that the others take.
OrderedJson cases_by_name() {
    OrderedJson cases;
    for (const OrderedJson& one : template_golden("models/cases.json")) cases[one.at("name").get<std::string>()] = one;
    OrderedJson plain = cases.at("several turns");
    plain["tools"] = cases.at("tool answered").at("tools");
    cases["plain"] = plain;
    return cases;
}

void expect_renderings(const std::string& source, const OrderedJson& golden, const OrderedJson& cases) {
    for (const auto& [name, expected] : golden.at("cases").items()) {
        SCOPED_TRACE(name);
        const Rendering rendering = rendering_of(source, inputs_of(cases.at(name)));
        if (expected.is_array()) {
            EXPECT_EQ(rendering.error, "");
            EXPECT_EQ(rendering.text, golden_text(golden, expected));
        } else {
            EXPECT_EQ(rendering.error, expected.at("error").get<std::string>());
            EXPECT_EQ(rendering.line, expected.at("line").get<int>());
        }
    }
}

TEST(TemplateGolden, OwnTemplatesOfEveryFeature) {
    const OrderedJson cases = cases_by_name();
    int n_templates = 0;
    for (const auto& entry : std::filesystem::directory_iterator(template_golden_path("features"))) {
        if (entry.path().extension() != ".jinja") continue;
        SCOPED_TRACE(entry.path().filename());
        const std::string name = entry.path().stem().string();
        expect_renderings(file_text(entry.path().string()), template_golden("features/" + name + ".json"), cases);
        ++n_templates;
    }
    EXPECT_EQ(n_templates, 11);
}

TEST(TemplateGolden, FamiliesForModelsWithoutATemplate) {
    const OrderedJson cases = cases_by_name();
    const OrderedJson golden = template_golden("fallbacks.json");
    std::string names;
    for (const auto& [name, renderings] : golden.items()) {
        SCOPED_TRACE(name);
        names += (names.empty() ? "" : ", ") + name;
        const TemplateFamily* family = find_template_family(name);
        ASSERT_NE(family, nullptr);
        expect_renderings(std::string(family->source), renderings, cases);
    }
    EXPECT_EQ(names, template_family_names());
}

void expect_rows(const std::string& file, std::size_t at_least) {
    const OrderedJson golden = template_golden(file);
    const TemplateInputs inputs = inputs_with(golden.at("variables"));
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
    expect_rows("expressions.json", 1000);
}

TEST(TemplateGolden, RandomPrograms) {
    expect_rows("programs.json", 200);
}

TEST(TemplateGolden, WhatJinjaRefusesIsRefusedOnTheSameLine) {
    const OrderedJson cases = cases_by_name();
    const TemplateInputs inputs = inputs_of(cases.at("tool answered"));
    const OrderedJson rows = template_golden("refused.json");
    EXPECT_GE(rows.size(), 150U);
    for (const OrderedJson& row : rows) {
        const auto source = row[0].get<std::string>();
        const Rendering rendering = rendering_of(source, inputs);
        EXPECT_NE(rendering.error, "") << source << "\nis refused by Jinja: " << row[1] << "\ngave: " << rendering.text;
        const int line = row[2].is_null() ? rendering.line : row[2].get<int>();
        EXPECT_EQ(rendering.line, line) << source << "\n" << rendering.error;
    }
}

}  // namespace
}  // namespace slipstream
