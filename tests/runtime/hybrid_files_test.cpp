// Files of models with delta nets: what configurations and keys mean, what is refused by name, hostile sizes and
// shapes, and that both formats of a model say the same.
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "runtime/formats/hf_config.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_files.h"
#include "runtime/formats/model_fingerprint.h"
#include "tests/support/damage.h"
#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/golden_model.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The configuration of a golden model with other fields; a null field is removed.
std::string config_of(const char* name, const Json& changes = Json::object()) {
    Json config = Json::parse(load_golden_model(name).config_json);
    for (const auto& [key, value] : changes.items()) {
        if (value.is_null())
            config.erase(key);
        else
            config[key] = value;
    }
    return config.dump();
}

ModelConfig parse(const std::string& json) {
    return parse_hf_config(json, "config.json").model;
}
std::string message(const std::string& json) {
    return error_text([&] { static_cast<void>(parse(json)); });
}
std::string message(const Json& changes) {
    return message(config_of("qwen35", changes));
}

std::vector<bool> recurrent(const ModelConfig& config) {
    std::vector<bool> is_recurrent;
    for (const LayerConfig& layer : config.layers) is_recurrent.push_back(!layer.has_attention());
    return is_recurrent;
}

TEST(HybridConfig, SaysWhichLayersHaveDeltaNets) {
    EXPECT_THAT(recurrent(parse(config_of("qwen35"))), ElementsAre(true, true, true, false));
    EXPECT_THAT(recurrent(parse(config_of("qwen35_interval"))), ElementsAre(true, false, true, false));
    EXPECT_THAT(recurrent(parse(config_of("qwen35_two_chunks"))), ElementsAre(false, true, true, false));
    // The list counts, not the interval.
    EXPECT_THAT(recurrent(parse(config_of("qwen35_two_chunks", {{"full_attention_interval", 2}}))),
                ElementsAre(false, true, true, false));
    EXPECT_THAT(recurrent(parse(config_of("qwen35", {{"full_attention_interval", 1}}))),
                ElementsAre(false, false, false, false));
}

TEST(HybridConfig, SizesAreThoseOfTheFieldsOrTheDefaults) {
    const ModelConfig config = parse(config_of("qwen35"));
    EXPECT_EQ(config.delta_net(1).shape,
              (DeltaNetShape{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 12, .value_dim = 20, .conv_width = 4}));
    EXPECT_EQ(config.ropes[0].n_rotated, 6);
    EXPECT_EQ(config.first_attention().n_q_heads, 4);
    const ModelConfig defaults = parse(config_of("qwen35", {{"linear_num_key_heads", nullptr},
                                                            {"linear_num_value_heads", nullptr},
                                                            {"linear_key_head_dim", nullptr},
                                                            {"linear_value_head_dim", nullptr},
                                                            {"linear_conv_kernel_dim", nullptr},
                                                            {"partial_rotary_factor", nullptr},
                                                            {"head_dim", nullptr}}));
    EXPECT_EQ(
        defaults.delta_net(1).shape,
        (DeltaNetShape{.n_key_heads = 16, .n_value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_width = 4}));
    EXPECT_EQ(defaults.ropes[0].n_rotated, 64);
}

TEST(HybridConfig, AbsurdFieldsAreRefusedInALine) {
    EXPECT_EQ(message({{"full_attention_interval", 0}}), "config.json: field full_attention_interval is 0");
    EXPECT_EQ(message({{"full_attention_interval", 5}}),
              "config.json: no layer has attention: models of recurrent layers alone are not served");
    EXPECT_EQ(message({{"layer_types", {"linear_attention"}}}),
              "config.json: field layer_types is not a list of 4 layers");
    EXPECT_EQ(message({{"layer_types", {"linear_attention", "sliding_attention", 3, "full_attention"}}}),
              "config.json: layer type \"sliding_attention\" is not served (served: linear_attention, full_attention)");
    EXPECT_EQ(message({{"linear_num_value_heads", 5}}),
              "config.json: 5 value heads of a delta net are not a multiple of 2 key heads");
    for (const char* field :
         {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"}) {
        EXPECT_THAT(message({{field, 0}}), HasSubstr("is 0; 1 to ")) << field;
        EXPECT_THAT(message({{field, -4}}), HasSubstr("is -4; 1 to ")) << field;
        EXPECT_THAT(message({{field, 1LL << 62}}), HasSubstr("is 4611686018427387904; 1 to ")) << field;
    }
    for (const std::int64_t width : {std::int64_t{1}, std::int64_t{0}, std::int64_t{-1}, std::int64_t{9}})
        EXPECT_EQ(
            message({{"linear_conv_kernel_dim", width}}),
            fmt::format("config.json: the convolution of a delta net sees {} tokens; 2 to 8 can be served", width));
    EXPECT_THAT(message({{"linear_num_value_heads", 4096}, {"linear_value_head_dim", 1024}}),
                HasSubstr("columns of a delta net is"));
    EXPECT_EQ(message({{"attention_bias", true}}), "config.json: attention_bias is not served for qwen35");
    EXPECT_THAT(message({{"attn_output_gate", false}}), HasSubstr("attention without an output gate"));
    EXPECT_EQ(message({{"output_gate_type", "sigmoid"}}),
              "config.json: output_gate_type \"sigmoid\" is not served (served: silu)");
    EXPECT_EQ(message({{"num_experts", 8}}), "config.json: a mixture of 8 experts, which is not served");
}

TEST(HybridConfig, MixturesHaveExpertsAndAGatedSharedOne) {
    const ModelConfig moe = parse(config_of("qwen35_moe"));
    for (const LayerConfig& layer : moe.layers) {
        EXPECT_EQ(layer.feed_forward.experts, (ExpertsConfig{.n_experts = 8, .n_chosen = 2, .d_ff = 24}));
        EXPECT_EQ(layer.feed_forward.d_ff, 20);
    }
    const ModelConfig next = parse(config_of("qwen3_next_dense_layer"));
    EXPECT_TRUE(next.experts(1).empty());
    EXPECT_EQ(next.layers[1].feed_forward.d_ff, 48);
    EXPECT_EQ(next.layers[2].feed_forward.d_ff, 40);
    EXPECT_FALSE(next.experts(2).weighting.normalized);
    const auto refused = [](const char* name, const Json& changes) { return message(config_of(name, changes)); };
    EXPECT_EQ(refused("qwen35_moe", {{"num_experts", 0}}),
              "config.json: field num_experts is 0; a mixture has experts");
    EXPECT_EQ(refused("qwen35_moe", {{"shared_expert_intermediate_size", 0}}),
              "config.json: a shared expert of width 0");
    EXPECT_EQ(refused("qwen3_next", {{"mlp_only_layers", {0, 1, 2, 3}}}),
              "config.json: field mlp_only_layers leaves no layer with experts");
    EXPECT_EQ(refused("qwen3_next", {{"decoder_sparse_step", 0}}), "config.json: field decoder_sparse_step is 0");
    EXPECT_THAT(refused("qwen3_next", {{"mlp_only_layers", {1}}, {"intermediate_size", nullptr}}),
                HasSubstr("d_ff (intermediate size) is 0"));
}

// Values of a tensor as floats.
std::vector<float> values(const ConstTensorView& view) {
    std::vector<float> all(static_cast<std::size_t>(view.rows() * view.cols()));
    for (std::int64_t row = 0; row < view.rows(); ++row)
        cpu::dequantize_row(view.dtype, view.rank > 1 ? view.row(row) : view.data, all.data() + row * view.cols(),
                            view.cols());
    return all;
}

std::filesystem::path write(const TempFolder& folder, const GgufWriter& file) {
    return folder.write("model.gguf", file.bytes());
}

TEST(HybridFiles, BothFormatsSayTheSame) {
    for (const char* name : {"qwen35", "qwen35_interval", "qwen35_two_chunks"}) {
        SCOPED_TRACE(name);
        const GoldenModel golden = load_golden_model(name);
        const TempFolder folder, gguf_folder;
        write_hugging_face(golden, folder.path());
        const auto hf = ModelFiles::open(folder.path());
        const auto gguf = ModelFiles::open(write(gguf_folder, golden_gguf(golden)));
        ASSERT_EQ(hf->config().n_layers(), gguf->config().n_layers());
        const ModelWeights a = hf->weights();
        const ModelWeights b = gguf->weights();
        for (std::int64_t layer = 0; layer < hf->config().n_layers(); ++layer) {
            const LayerConfig& of_hf = hf->config().layers[layer];
            const LayerConfig& of_gguf = gguf->config().layers[layer];
            ASSERT_EQ(of_hf.has_attention(), of_gguf.has_attention());
            if (of_hf.has_attention()) {
                EXPECT_EQ(of_hf.attention(), of_gguf.attention());
                EXPECT_EQ(a.layers[layer][TensorRole::Q].rows(), 2 * of_hf.attention().q_cols());
                EXPECT_EQ(a.layers[layer][TensorRole::DeltaIn].rank, 0);
                continue;
            }
            EXPECT_EQ(a.layers[layer][TensorRole::Q].rank, 0);
            const DeltaNetShape grouped = of_hf.delta_net().shape;
            DeltaNetShape tiled = grouped;
            tiled.tiled = grouped.n_key_heads != grouped.n_value_heads;
            EXPECT_EQ(of_gguf.delta_net(), (DeltaNetConfig{.shape = tiled, .log_decay = false}));
            // Value head h of GGUF is value head (h mod Hk) * (Hv / Hk) + h / Hk of Hugging Face: the same key head.
            const std::int64_t per_key = grouped.n_value_heads / grouped.n_key_heads;
            for (std::int64_t head = 0; head < grouped.n_value_heads; ++head) {
                const std::int64_t other = head % grouped.n_key_heads * per_key + head / grouped.n_key_heads;
                EXPECT_EQ(tiled.key_head(head), grouped.key_head(other));
                const auto row = [](const ConstTensorView& view, std::int64_t index) {
                    return values(view.slice_rows(index, 1));
                };
                const std::int64_t first = 2 * grouped.key_cols();
                for (const TensorRole role : {TensorRole::DeltaIn, TensorRole::DeltaConv})
                    EXPECT_EQ(row(b.layers[layer][role], first + head * grouped.value_dim + 1),
                              row(a.layers[layer][role], first + other * grouped.value_dim + 1));
                EXPECT_EQ(row(b.layers[layer][TensorRole::DeltaGate], head * grouped.value_dim),
                          row(a.layers[layer][TensorRole::DeltaGate], other * grouped.value_dim));
                for (const TensorRole role : {TensorRole::DeltaBeta, TensorRole::DeltaDecayIn})
                    EXPECT_EQ(row(b.layers[layer][role], head), row(a.layers[layer][role], other));
                EXPECT_EQ(values(b.layers[layer][TensorRole::DeltaDecayBias])[head],
                          values(a.layers[layer][TensorRole::DeltaDecayBias])[other]);
                EXPECT_FLOAT_EQ(values(b.layers[layer][TensorRole::DeltaDecay])[head],
                                -std::exp(values(a.layers[layer][TensorRole::DeltaDecay])[other]));
                EXPECT_EQ(row(b.layers[layer][TensorRole::DeltaOut], 3)[head * grouped.value_dim + 2],
                          row(a.layers[layer][TensorRole::DeltaOut], 3)[other * grouped.value_dim + 2]);
            }
            EXPECT_EQ(values(b.layers[layer][TensorRole::DeltaNorm]), values(a.layers[layer][TensorRole::DeltaNorm]));
        }
        EXPECT_EQ(hf->config().norm_offset, 1.0F);
        EXPECT_EQ(gguf->config().norm_offset, 0.0F);
        EXPECT_EQ(values(b.output_norm)[3], values(a.output_norm)[3] + 1.0F);
        EXPECT_EQ(describe_ignored_tensors(*hf), "");
        EXPECT_EQ(describe_ignored_tensors(*gguf), "");
        EXPECT_NE(model_fingerprint(*hf), model_fingerprint(*gguf));
    }
}

// The fused matrix of queries, keys and values that files of attention layers may have.
TEST(HybridFiles, FusedQueriesHaveTheirGates) {
    const GoldenModel golden = load_golden_model("qwen35");
    GgufWriter file = golden_gguf(golden);
    std::vector<float> fused;
    for (const char* part : {"q", "k", "v"}) {
        for (const GoldenTensor& tensor : golden.tensors) {
            if (tensor.name != fmt::format("model.layers.3.self_attn.{}_proj.weight", part)) continue;
            const std::vector<float> own = golden_values(tensor);
            fused.insert(fused.end(), own.begin(), own.end());
        }
        file.erase_tensor(fmt::format("blk.3.attn_{}.weight", part));
    }
    file.tensor("blk.3.attn_qkv.weight", 0, {std::ssize(fused) / 40, 40},
                std::string(reinterpret_cast<const char*>(fused.data()), fused.size() * sizeof(float)));
    const TempFolder folder, plain_folder;
    const auto files = ModelFiles::open(write(folder, file));
    const auto plain = ModelFiles::open(write(plain_folder, golden_gguf(golden)));
    for (const TensorRole role : {TensorRole::Q, TensorRole::K, TensorRole::V})
        EXPECT_EQ(values(files->weights().layers[3][role]), values(plain->weights().layers[3][role]));
}

TEST(HybridFiles, PartsThatAreNotUsedAreNamed) {
    const GoldenModel plain = load_golden_model("qwen35");
    GoldenModel golden = plain;
    golden.tensors.push_back({"mtp.fc.weight", {40, 80}});
    golden.tensors.push_back({"mtp.layers.0.self_attn.q_proj.weight", {192, 40}});
    golden.tensors.push_back({"model.visual.patch_embed.proj.weight", {4, 4}});
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    EXPECT_EQ(describe_ignored_tensors(*ModelFiles::open(folder.path())), "mtp (2 tensors), visual (1 tensor)");

    // Layers of GGUF files that propose tokens are counted by block_count; flags are there for all of them.
    GgufWriter file = golden_gguf(plain);
    file.set("qwen35.block_count", std::uint32_t{5}).set("qwen35.nextn_predict_layers", std::uint32_t{1});
    file.floats("blk.4.nextn.eh_proj.weight", {40, 80});
    file.floats("blk.4.attn_norm.weight", {40});
    const TempFolder gguf_folder;
    const auto files = ModelFiles::open(write(gguf_folder, file));
    EXPECT_THAT(recurrent(files->config()), ElementsAre(true, true, true, false));
    EXPECT_EQ(describe_ignored_tensors(*files), "blk.4 (2 tensors)");
    std::vector<GgufBytes> flags;
    for (const bool flag : {true, false, true, false, false}) flags.push_back(gguf_scalar(flag));
    file.set("qwen35.attention.recurrent_layers", gguf_array(flags));
    const TempFolder other;
    EXPECT_THAT(recurrent(ModelFiles::open(write(other, file))->config()), ElementsAre(true, false, true, false));
}

// The matrices of Qwen3-Next's delta nets: fused in Hugging Face directories, partly in GGUF files, in the same order.
TEST(HybridFiles, FusedInputsOfDeltaNetsAreThoseOfTheirKeyHeads) {
    const GoldenModel golden = load_golden_model("qwen3_next");
    const TempFolder folder;
    const TempFolder gguf_folder;
    write_hugging_face(golden, folder.path());
    const auto hf = ModelFiles::open(folder.path());
    const auto gguf = ModelFiles::open(write(gguf_folder, golden_gguf(golden)));
    const DeltaNetConfig& fused = hf->config().delta_net(0);
    const DeltaNetShape& shape = fused.shape;
    EXPECT_TRUE(fused.gate_in_inputs && fused.decay_in_beta);
    EXPECT_EQ(gguf->config().delta_net(0),
              (DeltaNetConfig{.shape = shape, .log_decay = false, .gate_in_inputs = false, .decay_in_beta = true}));
    const LayerWeights a = hf->weights().layers[0];
    const LayerWeights b = gguf->weights().layers[0];
    EXPECT_EQ(a[TensorRole::DeltaGate].rank, 0);
    EXPECT_EQ(a[TensorRole::DeltaDecayIn].rank, 0);
    EXPECT_EQ(values(a[TensorRole::DeltaBeta]), values(b[TensorRole::DeltaBeta]));
    const std::int64_t of_values = shape.n_value_heads / shape.n_key_heads * shape.value_dim;
    const std::int64_t of_key = 2 * (shape.key_dim + of_values);
    for (std::int64_t key = 0; key < shape.n_key_heads; ++key) {
        const auto rows = [&](std::int64_t begin, std::int64_t n) {
            return values(a[TensorRole::DeltaIn].slice_rows(key * of_key + begin, n));
        };
        const auto apart = [&](std::int64_t begin, std::int64_t n) {
            return values(b[TensorRole::DeltaIn].slice_rows(begin + key * n, n));
        };
        EXPECT_EQ(rows(0, shape.key_dim), apart(0, shape.key_dim));
        EXPECT_EQ(rows(shape.key_dim, shape.key_dim), apart(shape.key_cols(), shape.key_dim));
        EXPECT_EQ(rows(2 * shape.key_dim, of_values), apart(2 * shape.key_cols(), of_values));
        EXPECT_EQ(rows(2 * shape.key_dim + of_values, of_values),
                  values(b[TensorRole::DeltaGate].slice_rows(key * of_values, of_values)));
    }
    EXPECT_EQ(describe_ignored_tensors(*hf), "");
    EXPECT_EQ(describe_ignored_tensors(*gguf), "");
    EXPECT_NE(model_fingerprint(*hf), model_fingerprint(*gguf));
}

std::string weights_message(const GoldenModel& golden, const std::function<std::string(const std::string&)>& name) {
    const TempFolder folder;
    write_hugging_face(golden, folder.path(), name);
    return error_text([&] { static_cast<void>(ModelFiles::open(folder.path())->weights()); });
}

TEST(HybridTensors, MissingAndWrongOnesAreNamed) {
    const GoldenModel golden = load_golden_model("qwen35");
    for (const char* part : {"in_proj_qkv.weight", "in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight",
                             "conv1d.weight", "A_log", "dt_bias", "norm.weight", "out_proj.weight"}) {
        const std::string whole = fmt::format("model.layers.1.linear_attn.{}", part);
        const auto moved = [&](const std::string& name) { return name == whole ? std::string("other") : name; };
        EXPECT_THAT(weights_message(golden, moved), HasSubstr(fmt::format("tensor {} [", whole)));
        GoldenModel changed = golden;
        for (GoldenTensor& tensor : changed.tensors)
            if (tensor.name == whole) ++tensor.shape.front();
        EXPECT_THAT(weights_message(changed, nullptr), HasSubstr(fmt::format("tensor {} has shape [", whole)));
    }
    GoldenModel changed = golden;
    for (GoldenTensor& tensor : changed.tensors)
        if (tensor.name == "model.layers.3.self_attn.q_proj.weight") tensor.shape = {96, 40};
    EXPECT_THAT(weights_message(changed, nullptr),
                HasSubstr("q_proj.weight has shape [96, 40], the configuration asks for [192, 40]"));
    changed = golden;
    changed.tensors.push_back({"model.layers.0.self_attn.q_proj.weight", {192, 40}});
    EXPECT_THAT(weights_message(changed, nullptr),
                HasSubstr("model.layers.0.self_attn.q_proj.weight is there, but the configuration says that the layer "
                          "has a delta net"));
    changed = golden;
    changed.tensors.push_back({"model.layers.3.linear_attn.A_log", {4}});
    EXPECT_THAT(weights_message(changed, nullptr),
                HasSubstr("model.layers.3.linear_attn.A_log is there, but the configuration says that the layer has "
                          "attention"));
    for (const char* bias : {"model.layers.0.linear_attn.conv1d.bias", "model.layers.0.linear_attn.out_proj.bias",
                             "model.layers.3.self_attn.q_proj.bias"}) {
        changed = golden;
        changed.tensors.push_back({bias, {96}});
        EXPECT_THAT(weights_message(changed, nullptr), HasSubstr(fmt::format("tensor {}", bias)));
    }
}

TEST(HybridTensors, ThoseOfMixturesAreNamed) {
    const auto without = [](const char* name, const std::string& tensor) {
        return weights_message(load_golden_model(name), [&](const std::string& other) {
            return other == tensor ? std::string("other") : other;
        });
    };
    EXPECT_THAT(without("qwen35_moe", "model.layers.1.mlp.shared_expert_gate.weight"),
                HasSubstr("tensor model.layers.1.mlp.shared_expert_gate.weight [1, 40] is missing"));
    EXPECT_THAT(without("qwen35_moe", "model.layers.1.mlp.experts.gate_up_proj"),
                HasSubstr("tensor model.layers.1.mlp.experts.0.gate_proj.weight [24, 40] is missing"));
    EXPECT_THAT(without("qwen35_moe", "model.layers.1.mlp.experts.down_proj"),
                HasSubstr("tensor model.layers.1.mlp.experts.down_proj [8, 40, 24] is missing"));
    EXPECT_THAT(without("qwen3_next", "model.layers.2.linear_attn.in_proj_qkvz.weight"),
                HasSubstr("tensor model.layers.2.linear_attn.in_proj_qkvz.weight [288, 40] is missing"));
    EXPECT_THAT(without("qwen3_next", "model.layers.2.linear_attn.in_proj_ba.weight"),
                HasSubstr("tensor model.layers.2.linear_attn.in_proj_ba.weight [12, 40] is missing"));
    GoldenModel changed = load_golden_model("qwen35_moe");
    for (GoldenTensor& tensor : changed.tensors)
        if (tensor.name == "model.layers.0.mlp.experts.gate_up_proj") tensor.shape = {8, 24, 40};
    EXPECT_THAT(weights_message(changed, nullptr),
                HasSubstr("experts.gate_up_proj has shape [8, 24, 40], the configuration asks for [8, 48, 40]"));
}

std::string gguf_message(const std::function<void(GgufWriter&)>& change, const char* name = "qwen35") {
    GgufWriter file = golden_gguf(load_golden_model(name));
    change(file);
    const TempFolder folder;
    const auto path = write(folder, file);
    return error_text([&] { static_cast<void>(ModelFiles::open(path)->weights()); });
}

TEST(HybridKeys, ThoseOfMixturesAreChecked) {
    for (const char* name : {"qwen35_moe", "qwen3_next"}) {
        const std::string arch = name == std::string("qwen3_next") ? "qwen3next" : "qwen35moe";
        EXPECT_EQ(gguf_message([](GgufWriter&) {}, name), "nothing thrown");
        for (const char* key :
             {"expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length"}) {
            const std::string whole = fmt::format("{}.{}", arch, key);
            // Without a number of its own, the shared expert is as wide as the others.
            const bool is_shared = whole.ends_with("expert_shared_feed_forward_length");
            const bool is_count = whole.ends_with("expert_count") && arch == "qwen35moe";
            EXPECT_THAT(gguf_message([&](GgufWriter& file) { file.erase(whole); }, name),
                        HasSubstr(is_shared  ? "the configuration asks for [24, 40]"
                                  : is_count ? "qwen35moe.feed_forward_length is missing"
                                             : fmt::format("{} is missing", whole)));
            for (const std::uint32_t value : {0U, 0xffffffffU})
                EXPECT_NE(gguf_message([&](GgufWriter& file) { file.set(whole, value); }, name), "nothing thrown");
        }
        EXPECT_THAT(gguf_message([](GgufWriter& file) { file.erase_tensor("blk.1.ffn_gate_inp_shexp.weight"); }, name),
                    HasSubstr("tensor blk.1.ffn_gate_inp_shexp.weight [1, 40] is missing"));
        // Older files have the gate as a vector.
        EXPECT_EQ(gguf_message([](GgufWriter& file) { file.floats("blk.1.ffn_gate_inp_shexp.weight", {40}); }, name),
                  "nothing thrown");
    }
    EXPECT_THAT(gguf_message([](GgufWriter& file) { file.erase_tensor("blk.1.ssm_ba.weight"); }, "qwen3_next"),
                HasSubstr("tensor blk.1.ssm_ba.weight [12, 40] is missing"));
    // A file with both forms: the gate apart is not used.
    EXPECT_THAT(gguf_message(
                    [](GgufWriter& file) {
                        file.floats("blk.1.ssm_in.weight", {288, 40});
                    },
                    "qwen3_next"),
                HasSubstr("blk.1.attn_gate.weight is there, but"));
}

TEST(HybridKeys, HostileSizesAreRefusedInALine) {
    EXPECT_EQ(gguf_message([](GgufWriter&) {}), "nothing thrown");
    for (const char* key :
         {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size"}) {
        const std::string whole = fmt::format("qwen35.{}", key);
        EXPECT_THAT(gguf_message([&](GgufWriter& file) { file.erase(whole); }),
                    HasSubstr(fmt::format("metadata {} is missing", whole)));
        for (const std::uint32_t value : {0U, 1U, 7U, 0xffffffffU}) {
            const std::string found = gguf_message([&](GgufWriter& file) { file.set(whole, value); });
            EXPECT_NE(found, "nothing thrown") << key << " " << value;
            EXPECT_EQ(found.find('\n'), std::string::npos) << found;
        }
    }
    EXPECT_THAT(
        gguf_message([](GgufWriter& file) { file.set("qwen35.ssm.inner_size", std::uint32_t{82}); }),
        HasSubstr("qwen35.ssm.inner_size = 82 does not divide among qwen35.ssm.time_step_rank = 4 value heads"));
    EXPECT_THAT(gguf_message([](GgufWriter& file) { file.set("qwen35.full_attention_interval", std::uint32_t{0}); }),
                HasSubstr("qwen35.full_attention_interval is 0"));
    EXPECT_THAT(gguf_message([](GgufWriter& file) { file.set("qwen35.nextn_predict_layers", std::uint32_t{4}); }),
                HasSubstr("qwen35.nextn_predict_layers = 4 of 4 layers"));
    EXPECT_THAT(gguf_message([](GgufWriter& file) {
                    file.set("qwen35.attention.recurrent_layers", gguf_array({gguf_scalar(true)}));
                }),
                HasSubstr("one integer for each of 4 layers is needed"));
    EXPECT_THAT(gguf_message([](GgufWriter& file) { file.erase_tensor("blk.1.attn_gate.weight"); }),
                HasSubstr("tensor blk.1.attn_gate.weight [80, 40] is missing"));
    EXPECT_THAT(gguf_message([](GgufWriter& file) {
                    file.floats("blk.3.attn_gate.weight", {96, 40});
                }),
                HasSubstr("blk.3.attn_gate.weight is there, but the configuration says that the layer has attention"));
    EXPECT_THAT(gguf_message([](GgufWriter& file) {
                    file.floats("blk.1.ssm_conv1d.weight", {4, 128});
                }),
                HasSubstr("blk.1.ssm_conv1d.weight has shape [4, 128], the configuration asks for [128, 4]"));
}

// Headers and configurations with random damage are read, or refused in a line.
TEST(HybridFiles, DamagedOnesAreReadOrRefusedInALine) {
    std::mt19937 random(45);
    std::int64_t n_refused = 0;
    std::int64_t n_files = 0;
    const auto open = [&](const std::filesystem::path& path) {
        ++n_files;
        const std::string found = error_text([&] {
            const auto files = ModelFiles::open(path);
            static_cast<void>(files->weights());
            static_cast<void>(describe_ignored_tensors(*files));
        });
        if (found == "nothing thrown") return;
        ++n_refused;
        EXPECT_EQ(found.find('\n'), std::string::npos) << found;
        EXPECT_FALSE(found.empty());
    };
    for (const char* name : {"qwen35", "qwen35_moe", "qwen3_next", "qwen35_two_chunks"}) {
        const GoldenModel golden = load_golden_model(name);
        const GgufWriter file = golden_gguf(golden);
        const std::string header = file.bytes().substr(0, file.header_bytes());
        const std::string rest = file.bytes().substr(file.header_bytes());
        const TempFolder folder;
        write_hugging_face(golden, folder.path());
        for (int round = 0; round < 65; ++round) {
            const auto kind = static_cast<DamageKind>(round % 5);
            const DamagedFile damaged = damage(std::as_bytes(std::span(header)), {0, header.size()}, kind, random, 16);
            const TempFolder gguf_folder;
            open(gguf_folder.write(
                "model.gguf",
                std::string(reinterpret_cast<const char*>(damaged.bytes.data()), damaged.bytes.size()) + rest));
            const DamagedFile config =
                damage(std::as_bytes(std::span(golden.config_json)), {0, golden.config_json.size()}, kind, random, 16);
            folder.write("config.json",
                         std::string_view(reinterpret_cast<const char*>(config.bytes.data()), config.bytes.size()));
            open(folder.path());
        }
    }
    EXPECT_EQ(n_files, 520);
    EXPECT_GT(n_refused, 250);
}

}  // namespace
}  // namespace slipstream
