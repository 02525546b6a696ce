// The MTP head against its golden logits, made in double by tests/golden/mtp/make.py: in both
// formats, on every kernel variant, fed whole or in pieces; damaged files give one line each.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/formats/head_files.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/pass/hidden_tail.h"
#include "tests/support/damage.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_head.h"
#include "tests/support/head_logits.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using testing::HasSubstr;

std::filesystem::path write_folder(const TempFolder& folder, const GoldenModel& model) {
    write_hugging_face(model, folder.path());
    return folder.path();
}
std::filesystem::path write_file(const TempFolder& folder, const GgufWriter& writer) {
    const std::filesystem::path path = folder.path() / "model.gguf";
    std::ofstream(path, std::ios::binary) << writer.bytes();
    return path;
}

class Heads : public testing::TestWithParam<const char*> {};

TEST_P(Heads, GiveTheGoldenLogitsInBothFormats) {
    const GoldenHead golden = load_golden_head(GetParam());
    const TempFolder folder;
    const TempFolder gguf_folder;
    for (const bool gguf : {false, true}) {
        SCOPED_TRACE(gguf ? "GGUF" : "Hugging Face");
        const auto files = ModelFiles::open(gguf ? write_file(gguf_folder, golden_head_gguf(golden))
                                                 : write_folder(folder, golden.model));
        for (const CpuForm form : kCpuForms) {
            if (!cpu_has_form(form)) continue;
            CpuDevice device({.n_threads = 2, .form = form});
            const std::vector<float> whole = head_logits(*files, golden, device, 64, ProposingHead::LmHead::Own);
            ASSERT_EQ(whole.size(), golden.logits.size());
            EXPECT_LT(nmse(whole, golden.logits), 1e-6) << cpu_form_name(form);
            // Batch invariance; the target's LM head, where the head uses it, is the same.
            EXPECT_EQ(head_logits(*files, golden, device, 3, ProposingHead::LmHead::OfTarget), whole)
                << cpu_form_name(form);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, Heads,
                         testing::Values("qwen35", "qwen35_interval", "qwen35_moe", "glm4_moe", "glm4_moe_plain"),
                         [](const auto& test) { return std::string(test.param); });

std::string folder_message(const GoldenModel& model) {
    const TempFolder folder;
    const auto files = ModelFiles::open(write_folder(folder, model));
    return error_text([&] { static_cast<void>(open_head(*files)); });
}
std::string gguf_message(const GgufWriter& writer) {
    const TempFolder folder;
    const auto files = ModelFiles::open(write_file(folder, writer));
    return error_text([&] { static_cast<void>(open_head(*files)); });
}

TEST(HeadFiles, AModelWithoutAHeadHasNone) {
    const TempFolder folder;
    const auto files = ModelFiles::open(write_folder(folder, load_golden_model("qwen35")));
    EXPECT_FALSE(has_head(*files));
    EXPECT_EQ(open_head(*files), nullptr);
    // Another family: its tensors of that name mean something else.
    GoldenModel other = load_golden_model("llama_gqa");
    other.tensors.push_back({"mtp.fc.weight", {32, 64}});
    const TempFolder other_folder;
    EXPECT_FALSE(has_head(*ModelFiles::open(write_folder(other_folder, other))));
}

// A line that names the tensor for each of the head's tensors that is missing or has another shape.
TEST(HeadFiles, EachMissingOrMisshapenTensorIsNamed) {
    for (const char* name : {"qwen35", "qwen35_moe", "glm4_moe"}) {
        const GoldenHead golden = load_golden_head(name);
        for (std::size_t i = 0; i < golden.tensors.size(); ++i) {
            const std::size_t at = golden.model.tensors.size() - golden.tensors.size() + i;
            GoldenModel without = golden.model;
            without.tensors.erase(without.tensors.begin() + static_cast<std::ptrdiff_t>(at));
            std::string tensor = golden.tensors[i].name;
            // All experts may be in one tensor, which is then looked for.
            if (tensor == "mtp.layers.0.mlp.experts.0.down_proj.weight") tensor = "mtp.layers.0.mlp.experts.down_proj";
            if (tensor.ends_with("embed_tokens.weight") || tensor.ends_with("shared_head.head.weight")) {
                EXPECT_EQ(folder_message(without), "nothing thrown") << "the model's is used";
            } else {
                EXPECT_THAT(folder_message(without), HasSubstr(fmt::format("the MTP head: tensor {} [", tensor)));
                EXPECT_THAT(folder_message(without), HasSubstr("] is missing"));
            }
            GoldenModel wrong = golden.model;
            wrong.tensors[at].shape.back() += 1;
            EXPECT_THAT(folder_message(wrong), HasSubstr(fmt::format("tensor {} has shape [", golden.tensors[i].name)));
        }
    }
    const auto expect_named = [](const GoldenHead& golden, const std::string& full, bool is_needed = true) {
        GgufWriter file = golden_head_gguf(golden);
        file.erase_tensor(full);
        if (is_needed) {
            EXPECT_THAT(gguf_message(file), HasSubstr(fmt::format("tensor {} [", full)));
        } else {
            EXPECT_EQ(gguf_message(file), "nothing thrown") << full << ": the model's is used";
        }
        file.floats(full, {3, 5});
        EXPECT_THAT(gguf_message(file), HasSubstr(fmt::format("tensor {} has shape [3, 5]", full)));
    };
    const GoldenHead qwen = load_golden_head("qwen35");
    for (const char* tensor : {"nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm", "attn_q",
                               "attn_output", "attn_k_norm", "ffn_down", "post_attention_norm"})
        expect_named(qwen, fmt::format("blk.4.{}.weight", tensor));
    const GoldenHead glm = load_golden_head("glm4_moe");
    for (const char* tensor : {"nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight",
                               "nextn.shared_head_norm.weight", "attn_q.bias", "attn_v.bias", "exp_probs_b.bias",
                               "ffn_gate_inp.weight", "ffn_up_shexp.weight", "ffn_down_exps.weight"})
        expect_named(glm, fmt::format("blk.3.{}", tensor));
    for (const char* tensor : {"nextn.embed_tokens.weight", "nextn.shared_head_head.weight"})
        expect_named(glm, fmt::format("blk.3.{}", tensor), false);
}

TEST(HeadFiles, AHeadOfSeveralLayersIsRefusedByName) {
    const auto with = [](const GoldenHead& golden, const char* name, std::vector<std::int64_t> shape) {
        GoldenModel model = golden.model;
        model.tensors.push_back({name, std::move(shape)});
        return folder_message(model);
    };
    const GoldenHead qwen = load_golden_head("qwen35");
    EXPECT_THAT(with(qwen, "mtp.layers.1.input_layernorm.weight", {40}),
                HasSubstr("tensors mtp.layers.1.*: a head of several layers is not served"));
    EXPECT_THAT(with(load_golden_head("glm4_moe"), "model.layers.4.input_layernorm.weight", {40}),
                HasSubstr("tensors model.layers.4.*: a head of several layers is not served"));
    GgufWriter second = golden_head_gguf(qwen);
    second.floats("blk.5.nextn.eh_proj.weight", {40, 80});
    EXPECT_THAT(gguf_message(second), HasSubstr("tensors blk.5.*: a head of several layers"));
}

// Biases that the model's layers do not have.
TEST(HeadFiles, ABiasThatTheModelHasNotIsRefused) {
    GoldenHead golden = load_golden_head("glm4_moe_plain");
    golden.model.tensors.push_back({"model.layers.3.self_attn.q_proj.bias", {48}});
    EXPECT_THAT(folder_message(golden.model), HasSubstr("model.layers.3.self_attn.q_proj.bias is there, but"));
}

// An embedding and an LM head of the head's own, or of the model.
TEST(HeadFiles, WhatAHeadLacksIsTheModels) {
    const auto expect = [](const ModelFiles& files, bool own_embedding, bool own_lm_head) {
        const std::unique_ptr<HeadSource> head = open_head(files);
        const ModelWeights of_head = head->weights();
        const ModelWeights of_model = files.weights();
        EXPECT_EQ(of_head.token_embedding.data != of_model.token_embedding.data, own_embedding);
        EXPECT_EQ(of_head.lm_head.data != of_model.lm_head.data, own_lm_head);
        EXPECT_EQ(head->has_own_lm_head(), own_lm_head);
        EXPECT_EQ(describe_ignored_tensors(files), "");
    };
    const auto expect_both = [&](const GoldenHead& golden, bool own_embedding, bool own_lm_head) {
        const TempFolder folder;
        expect(*ModelFiles::open(write_folder(folder, golden.model)), own_embedding, own_lm_head);
        const TempFolder gguf_folder;
        expect(*ModelFiles::open(write_file(gguf_folder, golden_head_gguf(golden))), own_embedding, own_lm_head);
    };
    expect_both(load_golden_head("glm4_moe"), true, true);
    expect_both(load_golden_head("qwen35"), false, false);
    // The model's LM head is its embedding.
    GoldenHead tied = load_golden_head("glm4_moe_plain");
    expect_both(tied, false, false);
    for (std::vector<GoldenTensor>* tensors : {&tied.tensors, &tied.model.tensors})
        tensors->push_back({"model.layers.3.embed_tokens.weight", {64, 40}});
    expect_both(tied, true, false);
}

// The model itself is read without its head, as ever.
TEST(HeadFiles, ADamagedHeadDoesNotKeepTheModelFromRunning) {
    GoldenHead golden = load_golden_head("qwen35");
    golden.model.tensors.back().shape.back() += 1;
    const TempFolder folder;
    const auto files = ModelFiles::open(write_folder(folder, golden.model));
    EXPECT_NO_THROW(static_cast<void>(files->weights()));
    EXPECT_THAT(describe_ignored_tensors(*files), HasSubstr("mtp ("));
}

// Headers of both formats with random damage: the head is read, or refused in a line.
TEST(HeadFiles, DamagedOnesAreReadOrRefusedInALine) {
    std::mt19937 random(46);
    std::int64_t n_refused = 0;
    std::int64_t n_read = 0;
    const auto open = [&](const std::filesystem::path& path) {
        const std::string found = error_text([&] {
            const auto files = ModelFiles::open(path);
            if (const auto head = open_head(*files)) ++n_read;
        });
        if (found == "nothing thrown") return;
        ++n_refused;
        EXPECT_EQ(found.find('\n'), std::string::npos) << found;
    };
    const auto text_of = [](const DamagedFile& file) {
        return std::string(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
    };
    for (const char* name : {"qwen35", "qwen35_moe", "glm4_moe"}) {
        const GoldenHead golden = load_golden_head(name);
        const GgufWriter writer = golden_head_gguf(golden);
        const std::string gguf = writer.bytes();
        const TempFolder folder;
        write_hugging_face(golden.model, folder.path());
        std::ifstream file(folder.path() / "model.safetensors", std::ios::binary);
        const std::string safetensors{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        std::uint64_t json_bytes = 0;
        std::memcpy(&json_bytes, safetensors.data(), sizeof(json_bytes));
        for (int round = 0; round < 130; ++round) {
            const auto kind = static_cast<DamageKind>(round % 5);
            const TempFolder gguf_folder;
            open(gguf_folder.write("model.gguf", text_of(damage(std::as_bytes(std::span(gguf)),
                                                                {0, writer.header_bytes()}, kind, random, 16))));
            folder.write("model.safetensors", text_of(damage(std::as_bytes(std::span(safetensors)),
                                                             {0, sizeof(json_bytes) + json_bytes}, kind, random, 16)));
            open(folder.path());
        }
    }
    EXPECT_GT(n_refused, 150);
    EXPECT_GT(n_read, 50);
}

TEST(HiddenTail, KeepsTheLastPositionsWithoutGaps) {
    CpuDevice device(CpuDeviceOptions{});
    const auto stream = device.make_stream(StreamKind::Compute);
    HiddenTail tail(device, 2, 3, 8);
    std::vector<float> rows;
    const auto take = [&](std::vector<NodeId> nodes, float first) {
        rows.clear();
        for (std::size_t i = 0; i < 2 * nodes.size(); ++i) rows.push_back(first + static_cast<float>(i / 2));
        tail.enqueue_copy({device, *stream}, nodes, matrix_view(rows.data(), std::ssize(nodes), 2));
        tail.mark_copied(nodes);
    };
    const auto nodes = [](std::initializer_list<std::int32_t> numbers) {
        std::vector<NodeId> all;
        for (const std::int32_t row : numbers) all.emplace_back(row);
        return all;
    };
    take(nodes({0, 1, 2, 3}), 10.0F);
    tail.commit(0, nodes({0, 2}));
    EXPECT_EQ(tail.begin(), 0);
    EXPECT_EQ(tail.end(), 2);
    EXPECT_EQ(tail.row(1)[0], 12.0F);
    // Nodes of two passes, of which one comes late.
    take(nodes({0, 1}), 20.0F);
    take(nodes({5, 3}), 30.0F);
    tail.commit(2, nodes({0, 3, 5}));
    EXPECT_EQ(tail.begin(), 2);
    EXPECT_EQ(tail.end(), 5);
    EXPECT_EQ(tail.row(2)[1], 20.0F);
    EXPECT_EQ(tail.row(3)[1], 31.0F);
    EXPECT_EQ(tail.row(4)[1], 30.0F);
    EXPECT_DEATH(static_cast<void>(tail.row(1)), "position 1");
    tail.truncate(4);
    EXPECT_EQ(tail.end(), 4);
    // A gap: positions 4 to 8 came without a pass.
    take(nodes({0}), 40.0F);
    tail.commit(9, nodes({0}));
    EXPECT_EQ(tail.begin(), 9);
    EXPECT_EQ(tail.end(), 10);
    // A node without a row.
    take(nodes({0}), 50.0F);
    tail.commit(10, nodes({0, 1}));
    EXPECT_EQ(tail.begin(), 12);
    EXPECT_EQ(tail.end(), 12);
    take(nodes({0}), 60.0F);
    tail.forget();
    tail.commit(12, nodes({0}));
    EXPECT_EQ(tail.begin(), tail.end());
}

}  // namespace
}  // namespace slipstream
