// Every architecture and rope scaling against transformers: the golden models, written in both formats, read back and
// run a token at a time, in pieces and in one pass. Logits are those of the golden file, and the same bits however they
// were cut (E1), with one thread and with two.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>

#include "kernels/cpu_device.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_files.h"
#include "runtime/formats/model_fingerprint.h"
#include "runtime/model/model.h"
#include "runtime/pass/forward.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_model.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

/// Logits of all tokens, [n_tokens, vocab], fed `piece_tokens` a pass, each pass committed behind the one before.
std::vector<float> run_in_prefill_chunks(const ModelFiles& files, const GoldenModel& golden,
                                         const CpuDeviceOptions& cpu, std::int64_t chunk_tokens,
                                         DType kv_dtype = DType::F32, WeightRounding rounding = WeightRounding::None) {
    CpuDevice device(cpu);
    const Model model(
        files, device,
        {.context_tokens = golden.context_tokens, .kv_dtype = kv_dtype, .rounding = rounding, .on_progress = {}});
    Forward forward(model, {.max_tokens = chunk_tokens, .max_logit_rows = chunk_tokens});
    KvCache cache(device, model.kv_layouts(), golden.context_tokens, chunk_tokens);
    std::vector<float> logits;
    const auto n_tokens = static_cast<std::int64_t>(golden.tokens.size());
    for (std::int64_t begin = 0; begin < n_tokens; begin += chunk_tokens) {
        const std::int64_t count = std::min(chunk_tokens, n_tokens - begin);
        std::vector<NodeId> nodes;
        std::vector<std::int32_t> rows;
        for (std::int64_t i = 0; i < count; ++i) {
            nodes.push_back(cache.add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
            rows.push_back(static_cast<std::int32_t>(i));
        }
        const std::span<const TokenId> tokens(golden.tokens.data() + begin, static_cast<std::size_t>(count));
        const ConstTensorView found = forward.run(cache, tokens, nodes, rows);
        for (std::int64_t row = 0; row < count; ++row)
            logits.insert(logits.end(), float_row(found, row), float_row(found, row) + golden.vocab);
        cache.commit(forward.exec(), nodes);
    }
    return logits;
}

/// Squared error over squared size, in double.
double nmse(std::span<const float> found, std::span<const float> wanted) {
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double difference = static_cast<double>(found[i]) - static_cast<double>(wanted[i]);
        error += difference * difference;
        size += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
    }
    return error / size;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_golden(const ModelFiles& files, const GoldenModel& golden, CpuForm form) {
    SCOPED_TRACE(fmt::format("{} as {}, {} kernels", golden.name, files.format(), cpu_form_name(form)));
    const std::vector<float> single = run_in_prefill_chunks(files, golden, {.n_threads = 1, .form = form}, 1);
    ASSERT_EQ(single.size(), golden.tokens.size() * static_cast<std::size_t>(golden.vocab));
    const std::span<const float> last(single.data() + single.size() - golden.logits.size(), golden.logits.size());
    // The bound of the project for F32 against another engine; found is below 1e-10, a wrong detail 1e-2 and up.
    // Products with quantised weights round activations to 8 bits.
    EXPECT_LT(nmse(last, golden.logits), golden.is_quantised() ? 2e-5 : 1e-6);
    const auto n_tokens = static_cast<std::int64_t>(golden.tokens.size());
    EXPECT_TRUE(same_bits(single, run_in_prefill_chunks(files, golden, {.n_threads = 2, .form = form}, n_tokens)))
        << "in one pass";
    EXPECT_TRUE(same_bits(single, run_in_prefill_chunks(files, golden, {.n_threads = 1, .form = form}, 7)))
        << "in pieces of 7";
}

void expect_golden_in_all_forms(const std::filesystem::path& path, const GoldenModel& golden) {
    const std::unique_ptr<ModelFiles> files = ModelFiles::open(path);
    for (const CpuForm form : kCpuForms)
        if (cpu_has_form(form)) expect_golden(*files, golden, form);
}

class HuggingFaceArchitecture : public testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceArchitecture, GivesTheGoldenLogits) {
    const GoldenModel golden = load_golden_model(GetParam());
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    expect_golden_in_all_forms(folder.path(), golden);
}

// A directory of a model that reads more than text: the fields of its text model are in "text_config", and the names of
// its tensors have one of two prefixes.
TEST(NestedArchitecture, GivesTheGoldenLogits) {
    const std::pair<const char*, const char*> models[] = {
        {"gemma3", "Gemma3ForConditionalGeneration"},
        {"gemma4_moe", "Gemma4ForConditionalGeneration"},
        {"mistral_no_window", "Mistral3ForConditionalGeneration"},
        {"ministral3", "Mistral3ForConditionalGeneration"},
        {"ministral3_tied_mscale", "Mistral3ForConditionalGeneration"},
        {"muse_glimmer", nullptr},
        {"qwen35_interval", "Qwen3_5ForConditionalGeneration"},
        {"qwen35_moe", "Qwen3_5MoeForConditionalGeneration"}};
    for (const auto& [name, outer] : models) {
        const GoldenModel plain = load_golden_model(name);
        for (const bool older : {false, true}) {
            SCOPED_TRACE(older ? "language_model.model." : "model.language_model.");
            GoldenModel nested = plain;
            if (outer != nullptr)
                nested.config_json =
                    fmt::format(R"({{"architectures":["{}"],"text_config":{}}})", outer, plain.config_json);
            nested.tensors.push_back({"vision_tower.patch_conv.weight", {4, 4}});
            const TempFolder folder;
            write_hugging_face(nested, folder.path(), [&](const std::string& tensor) -> std::string {
                if (tensor.starts_with("vision_tower.")) return tensor;
                if (!older && tensor == "lm_head.weight") return tensor;
                return older ? "language_model." + tensor : "model.language_model." + tensor.substr(6);
            });
            const auto files = ModelFiles::open(folder.path());
            EXPECT_EQ(describe_ignored_tensors(*files), "vision_tower (1 tensor)");
            expect_golden(*files, plain, CpuForm::Scalar);
        }
    }
}

// Newer converters write Mistral Small 3.x by the name that Ministral 3 has.
TEST(NewerArchitectureName, GivesTheGoldenLogits) {
    const GoldenModel golden = load_golden_model("mistral_no_window");
    const TempFolder folder;
    write_golden_gguf(golden, folder.path() / "model.gguf", "mistral3");
    const auto files = ModelFiles::open(folder.path() / "model.gguf");
    EXPECT_EQ(files->config().family, "mistral3");
    expect_golden(*files, golden, CpuForm::Scalar);
}

// Older files of Mixtral have a tensor for each expert.
TEST(OlderExpertTensors, GiveTheGoldenLogits) {
    const GoldenModel golden = load_golden_model("mixtral");
    const TempFolder folder;
    write_golden_gguf(golden, folder.path() / "model.gguf", "llama", GgufExperts::Apart);
    const auto files = ModelFiles::open(folder.path() / "model.gguf");
    EXPECT_EQ(files->config().experts(0).n_experts, 8);
    expect_golden(*files, golden, CpuForm::Scalar);
}

// Files of Gemma 4 may have the gate and up matrices of all experts in one tensor, or in two.
TEST(GateAndUpOfExperts, GiveTheGoldenLogitsInTwoTensors) {
    const GoldenModel golden = load_golden_model("gemma4_moe");
    const TempFolder folder;
    write_golden_gguf(golden, folder.path() / "model.gguf", "llama", GgufExperts::Apart);
    expect_golden(*ModelFiles::open(folder.path() / "model.gguf"), golden, CpuForm::Scalar);
}

// Older files of Qwen3-Next have the rows of inputs and gates of a delta net in one tensor, as Hugging Face
// directories.
TEST(OlderDeltaNetTensors, GiveTheGoldenLogits) {
    const GoldenModel golden = load_golden_model("qwen3_next");
    GgufWriter file = golden_gguf(golden);
    for (const GoldenTensor& tensor : golden.tensors) {
        if (!tensor.name.ends_with(".in_proj_qkvz.weight")) continue;
        const std::string layer = fmt::format("blk.{}.", tensor.name.substr(13, 1));
        const std::vector<float> values = golden_values(tensor);
        file.erase_tensor(layer + "attn_qkv.weight").erase_tensor(layer + "attn_gate.weight");
        file.tensor(layer + "ssm_in.weight", 0, tensor.shape,
                    std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }
    const TempFolder folder;
    const auto files = ModelFiles::open(folder.write("model.gguf", file.bytes()));
    EXPECT_TRUE(files->config().delta_net(0).gate_in_inputs);
    expect_golden(*files, golden, CpuForm::Scalar);
}

// Directories may have a tensor for each expert, GGUF files one for the gate and up matrices of all.
TEST(OtherExpertTensors, GiveTheGoldenLogits) {
    const GoldenModel golden = load_golden_model("qwen35_moe");
    SafetensorsWriter apart;
    GgufWriter fused = golden_gguf(golden);
    for (const GoldenTensor& tensor : golden.tensors) {
        const std::vector<float> values = golden_values(tensor);
        const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
        const std::size_t at = tensor.name.find("experts.");
        if (tensor.shape.size() != 3 || at == std::string::npos) {
            apart.tensor(tensor.name, "F32", tensor.shape, bytes);
            continue;
        }
        const bool is_down = tensor.name.ends_with("down_proj");
        const std::int64_t rows = is_down ? tensor.shape[1] : tensor.shape[1] / 2;
        const std::size_t matrix_bytes = static_cast<std::size_t>(rows * tensor.shape[2]) * sizeof(float);
        std::size_t begin = 0;
        for (std::int64_t expert = 0; expert < tensor.shape[0]; ++expert)
            for (const char* part : {"gate", "up", "down"}) {
                if (is_down != (part == std::string("down"))) continue;
                apart.tensor(fmt::format("{}experts.{}.{}_proj.weight", tensor.name.substr(0, at), expert, part), "F32",
                             {rows, tensor.shape[2]}, bytes.substr(begin, matrix_bytes));
                begin += matrix_bytes;
            }
        if (is_down) continue;
        const std::string layer = fmt::format("blk.{}.", tensor.name.substr(13, 1));
        fused.erase_tensor(layer + "ffn_gate_exps.weight").erase_tensor(layer + "ffn_up_exps.weight");
        fused.tensor(layer + "ffn_gate_up_exps.weight", 0, tensor.shape, bytes);
    }
    const TempFolder folder;
    folder.write("config.json", golden.config_json);
    folder.write("model.safetensors", apart.bytes());
    expect_golden(*ModelFiles::open(folder.path()), golden, CpuForm::Scalar);
    const TempFolder gguf_folder;
    expect_golden(*ModelFiles::open(gguf_folder.write("model.gguf", fused.bytes())), golden, CpuForm::Scalar);
}

// The blocks of MXFP4 are the same numbers in either format.
TEST(ExpertsInMxfp4, HaveTheSameLogitsInBothFormats) {
    const GoldenModel golden = load_golden_model("gpt_oss_mxfp4");
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    write_golden_gguf(golden, folder.path() / "model.gguf");
    const auto directory = ModelFiles::open(folder.path());
    const auto file = ModelFiles::open(folder.path() / "model.gguf");
    const ModelWeights weights = directory->weights();
    EXPECT_EQ(weights.layers[1].experts[7][TensorRole::Up].dtype, DType::MXFP4);
    EXPECT_EQ(describe_ignored_tensors(*directory), "");
    EXPECT_EQ(describe_ignored_tensors(*file), "");
    EXPECT_TRUE(same_bits(run_in_prefill_chunks(*directory, golden, {.n_threads = 2}, 7),
                          run_in_prefill_chunks(*file, golden, {.n_threads = 2}, 7)));
}

// Experts that a directory stores transposed are rounded like those that a file stores row by row.
TEST(TransposedExperts, AreRoundedAsRows) {
    GoldenModel golden = load_golden_model("gpt_oss_mxfp4");
    nlohmann::json config = nlohmann::json::parse(golden.config_json);
    config.erase("quantization_config");
    golden.config_json = config.dump();
    std::erase_if(golden.tensors, &GoldenTensor::is_bytes);
    for (int layer = 0; layer < 3; ++layer) {
        const std::string experts = fmt::format("model.layers.{}.mlp.experts.", layer);
        golden.tensors.push_back({experts + "gate_up_proj", {8, 64, 192}});
        golden.tensors.push_back({experts + "down_proj", {8, 96, 64}});
    }
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    write_golden_gguf(golden, folder.path() / "model.gguf");
    const auto directory = ModelFiles::open(folder.path());
    const auto file = ModelFiles::open(folder.path() / "model.gguf");
    std::vector<std::vector<float>> logits;
    for (const WeightRounding rounding : {WeightRounding::None, WeightRounding::Q8_0}) {
        logits.push_back(run_in_prefill_chunks(*directory, golden, {.n_threads = 2}, 7, DType::F32, rounding));
        EXPECT_TRUE(
            same_bits(logits.back(), run_in_prefill_chunks(*file, golden, {.n_threads = 2}, 7, DType::F32, rounding)));
    }
    EXPECT_FALSE(same_bits(logits[0], logits[1]));
}

TEST(GatedSharedExpert, AGateThatGivesNoFiniteNumbersNamesLayerAndToken) {
    const GoldenModel golden = load_golden_model("qwen35_moe");
    GgufWriter file = golden_gguf(golden);
    std::vector<float> gate(40, 0.5F);
    gate[7] = std::numeric_limits<float>::infinity();
    file.tensor("blk.1.ffn_gate_inp_shexp.weight", 0, {1, 40},
                std::string(reinterpret_cast<const char*>(gate.data()), gate.size() * sizeof(float)));
    const TempFolder folder;
    const auto files = ModelFiles::open(folder.write("model.gguf", file.bytes()));
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(run_in_prefill_chunks(*files, golden, {}, 7)); }),
                testing::HasSubstr("layer 1: the gate of the shared expert gives the token at position 0 logits that "
                                   "are not finite"));
}

class GgufArchitecture : public testing::TestWithParam<std::string> {};

TEST_P(GgufArchitecture, GivesTheGoldenLogits) {
    const GoldenModel golden = load_golden_model(GetParam());
    const TempFolder folder;
    write_golden_gguf(golden, folder.path() / "model.gguf");
    expect_golden_in_all_forms(folder.path() / "model.gguf", golden);
}

// Each greedy token is the most likely one after those before it.
void expect_greedy_text(const std::filesystem::path& path, const GoldenModel& golden, std::size_t n_prompt) {
    const auto files = ModelFiles::open(path);
    const auto vocab = static_cast<std::size_t>(golden.vocab);
    for (const CpuForm form : kCpuForms) {
        if (!cpu_has_form(form)) continue;
        const std::vector<float> logits = run_in_prefill_chunks(*files, golden, {.n_threads = 1, .form = form}, 1);
        for (std::size_t i = 0; i < golden.greedy.size(); ++i) {
            const auto row = logits.begin() + static_cast<std::ptrdiff_t>((n_prompt + i - 1) * vocab);
            const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row;
            ASSERT_EQ(best, golden.greedy[i]) << files->format() << ", " << cpu_form_name(form) << ", token " << i;
        }
    }
}

class GreedyText : public testing::TestWithParam<std::string> {};

TEST_P(GreedyText, IsThatOfTransformersInBothFormats) {
    GoldenModel golden = load_golden_model(GetParam());
    ASSERT_EQ(golden.greedy.size(), 64U);
    const std::size_t n_prompt = golden.tokens.size();
    golden.tokens.insert(golden.tokens.end(), golden.greedy.begin(), golden.greedy.end());
    golden.context_tokens = static_cast<std::int64_t>(golden.tokens.size());
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    expect_greedy_text(folder.path(), golden, n_prompt);
    if (!has_gguf_form(golden)) return;
    const TempFolder gguf_folder;
    write_golden_gguf(golden, gguf_folder.path() / "model.gguf");
    expect_greedy_text(gguf_folder.path() / "model.gguf", golden, n_prompt);
}

std::vector<std::string> names_with_greedy_text() {
    std::vector<std::string> names = golden_model_names();
    std::erase_if(names, [](const std::string& name) { return load_golden_model(name).greedy.empty(); });
    return names;
}

// A file with another number gives other texts, so tables and sessions of one must not serve the other.
TEST(ModelFingerprint, FollowsWhatOnlySomeFamiliesCompute) {
    const auto fingerprint = [](const GoldenModel& golden) {
        const TempFolder folder;
        write_hugging_face(golden, folder.path());
        return model_fingerprint(*ModelFiles::open(folder.path()));
    };
    struct Change {
        const char* model;
        const char* from;
        const char* to;
    };
    for (const Change& change :
         {Change{"ministral3", R"("llama_4_scaling_beta": 0.75)", R"("llama_4_scaling_beta": 0.5)"},
          {"muse_glimmer", R"("post_norm_eps": 0.5)", R"("post_norm_eps": 0.25)"},
          {"muse_glimmer", R"("qk_scale_factor": 1.7)", R"("qk_scale_factor": 1.5)"},
          {"muse_glimmer", R"("output_multiplier": 0.3)", R"("output_multiplier": 0.4)"},
          {"muse_glimmer_bias", "    \"layer_rope_theta\": [\n      0,", "    \"layer_rope_theta\": [\n      100.0,"},
          {"smollm3_list", "\"no_rope_layers\": [\n    0,", "\"no_rope_layers\": [\n    1,"},
          {"granite", R"("residual_multiplier": 0.35)", R"("residual_multiplier": 0.5)"},
          {"granite", R"("attention_multiplier": 0.5)", R"("attention_multiplier": 0.25)"},
          {"granite", R"("embedding_multiplier": 3.0)", R"("embedding_multiplier": 2.0)"},
          {"granite", R"("logits_scaling": 4.0)", R"("logits_scaling": 2.0)"},
          {"gpt_oss", R"("swiglu_limit": 0.5)", R"("swiglu_limit": 0.75)"},
          {"gpt_oss", R"("truncate": false)", R"("truncate": true)"},
          {"qwen3_moe", R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 3)"},
          {"qwen3_moe", R"("norm_topk_prob": true)", R"("norm_topk_prob": false)"},
          {"gemma4_moe", R"("top_k_experts": 2)", R"("top_k_experts": 3)"},
          {"glm4_moe", R"("routed_scaling_factor": 2.5)", R"("routed_scaling_factor": 1.5)"}}) {
        const GoldenModel golden = load_golden_model(change.model);
        GoldenModel changed = golden;
        const std::size_t at = changed.config_json.find(change.from);
        ASSERT_NE(at, std::string::npos) << change.from;
        changed.config_json.replace(at, std::string(change.from).size(), change.to);
        EXPECT_NE(fingerprint(changed), fingerprint(golden)) << change.to;
        EXPECT_EQ(fingerprint(golden), fingerprint(golden));
    }
}

class Q8Cache : public testing::TestWithParam<std::string> {};

TEST_P(Q8Cache, GivesTheGoldenLogitsOfRoundedRows) {
    const GoldenModel golden = load_golden_model(GetParam());
    const TempFolder folder;
    write_hugging_face(golden, folder.path());
    const std::unique_ptr<ModelFiles> files = ModelFiles::open(folder.path());
    const auto n_tokens = static_cast<std::int64_t>(golden.tokens.size());
    for (const CpuForm form : kCpuForms) {
        if (!cpu_has_form(form)) continue;
        SCOPED_TRACE(cpu_form_name(form));
        const auto run = [&](int n_threads, std::int64_t chunk_tokens) {
            return run_in_prefill_chunks(*files, golden, {.n_threads = n_threads, .form = form}, chunk_tokens,
                                         DType::Q8_0);
        };
        const std::vector<float> single = run(1, 1);
        const std::span<const float> last(single.data() + single.size() - golden.logits.size(), golden.logits.size());
        // A number in the middle between two codes may be rounded to the other one than in double. Rounding itself
        // moves the logits by 9e-6 (qwen3) to 3e-4. Integer products also round queries and weights, to 16 bits, so
        // more numbers of the layers above become the other code: without one 2e-10 (qwen3), with some up to 1.5e-5.
        const bool integers = form == CpuForm::Avx512Vnni || form == CpuForm::Avx512Bf16;
        EXPECT_LT(nmse(last, golden.logits_q8), integers ? 0.1 * nmse(last, golden.logits) : 2e-7);
        EXPECT_GT(nmse(last, golden.logits), 5e-6);
        EXPECT_TRUE(same_bits(single, run(2, n_tokens))) << "in one pass";
        EXPECT_TRUE(same_bits(single, run(1, 7))) << "in pieces of 7";
    }
}

std::vector<std::string> names_with_q8_logits() {
    std::vector<std::string> names = golden_model_names();
    std::erase_if(names, [](const std::string& name) { return load_golden_model(name).logits_q8.empty(); });
    return names;
}

std::vector<std::string> names_with_gguf_form() {
    std::vector<std::string> names = golden_model_names();
    std::erase_if(names, [](const std::string& name) { return !has_gguf_form(load_golden_model(name)); });
    return names;
}

std::string parameter_name(const testing::TestParamInfo<std::string>& parameter) {
    return parameter.param;
}

INSTANTIATE_TEST_SUITE_P(Golden, HuggingFaceArchitecture, testing::ValuesIn(golden_model_names()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Golden, GreedyText, testing::ValuesIn(names_with_greedy_text()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Golden, Q8Cache, testing::ValuesIn(names_with_q8_logits()), parameter_name);
INSTANTIATE_TEST_SUITE_P(Golden, GgufArchitecture, testing::ValuesIn(names_with_gguf_form()), parameter_name);

TEST(GoldenModels, AreAllThere) {
    EXPECT_EQ(golden_model_names().size(), 71U);
    EXPECT_EQ(names_with_gguf_form().size(), 53U);
    EXPECT_EQ(names_with_q8_logits().size(), 5U);
    EXPECT_EQ(names_with_greedy_text().size(), 31U);
}

// Printed by value() of make.py. A slip in the rule would show as wrong logits everywhere, and here as what it is.
TEST(GoldenModels, WeightsAreThoseOfTheScript) {
    const auto expect = [](const GoldenTensor& tensor, const std::vector<float>& first, double sum) {
        const std::vector<float> values = golden_values(tensor);
        double found = 0;
        for (const float value : values) found += static_cast<double>(value);
        EXPECT_EQ(found, sum) << tensor.name;
        for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(values[i], first[i]) << tensor.name << " " << i;
    };
    expect({"model.norm.weight", {48}}, {0.7743377685546875F, 0.81890869140625F}, 47.950111389160156);
    expect({"model.layers.0.self_attn.qkv_proj.weight", {80, 48}}, {-0.4762725830078125F, -0.255950927734375F},
           25.787704467773438);
    expect({"model.layers.1.self_attn.k_proj.bias", {16}}, {0.07818603515625F, -0.002716064453125F},
           -1.260772705078125);
    expect({"lm_head.weight", {64, 48}}, {0.2463836669921875F, 0.24236297607421875F}, -9.368476867675781);
    expect({"model.embed_tokens.weight", {64, 32}}, {-0.2574462890625F, -0.3599853515625F}, 7.083953857421875);
}

}  // namespace
}  // namespace slipstream
