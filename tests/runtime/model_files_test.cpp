// ModelFiles: whole models of both formats, opened from disk; parts, shards, roles of weights, and what is not a model.
#include "runtime/formats/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/support/error_text.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

const fs::path kShared = SLIPSTREAM_SOURCE_DIR "/../shared";

/// Writes a Hugging Face directory into `folder`.
void write_directory(const TempFolder& folder, const SafetensorsWriter& weights,
                     std::string_view config = kTinyLlamaConfig) {
    folder.write("config.json", config);
    folder.write("model.safetensors", weights.bytes());
}

/// What opening and binding the weights throws.
std::string message(const fs::path& path) {
    return error_text([&] { static_cast<void>(ModelFiles::open(path)->weights()); });
}

std::string message(const GgufWriter& writer) {
    const TempFolder folder;
    return message(folder.write("tiny.gguf", writer.bytes()));
}

std::string message(const SafetensorsWriter& weights, std::string_view config = kTinyLlamaConfig) {
    const TempFolder folder;
    write_directory(folder, weights, config);
    return message(folder.path());
}

std::vector<float> floats(ConstTensorView view) {
    std::vector<float> values(static_cast<std::size_t>(view.rows() * view.cols()));
    std::memcpy(values.data(), view.data, values.size() * sizeof(float));
    return values;
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Every weight of two models the same, q and k (rows in another order for the two formats) left to the caller.
void expect_same_but_qk(const ModelWeights& a, const ModelWeights& b) {
    EXPECT_EQ(floats(a.token_embedding), floats(b.token_embedding));
    EXPECT_EQ(floats(a.lm_head), floats(b.lm_head));
    EXPECT_EQ(floats(a.output_norm), floats(b.output_norm));
    ASSERT_EQ(a.layers.size(), b.layers.size());
    for (std::size_t i = 0; i < a.layers.size(); ++i) {
        EXPECT_EQ(floats(a.layers[i][TensorRole::AttnNorm]), floats(b.layers[i][TensorRole::AttnNorm]));
        EXPECT_EQ(floats(a.layers[i][TensorRole::V]), floats(b.layers[i][TensorRole::V]));
        EXPECT_EQ(floats(a.layers[i][TensorRole::AttnOut]), floats(b.layers[i][TensorRole::AttnOut]));
        EXPECT_EQ(floats(a.layers[i][TensorRole::FfnNorm]), floats(b.layers[i][TensorRole::FfnNorm]));
        EXPECT_EQ(floats(a.layers[i][TensorRole::Gate]), floats(b.layers[i][TensorRole::Gate]));
        EXPECT_EQ(floats(a.layers[i][TensorRole::Up]), floats(b.layers[i][TensorRole::Up]));
        EXPECT_EQ(floats(a.layers[i][TensorRole::Down]), floats(b.layers[i][TensorRole::Down]));
    }
}

TEST(ModelFiles, BothFormatsGiveTheSameWeights) {
    const TempFolder folder;
    write_directory(folder, tiny_llama_safetensors());
    const auto hf = ModelFiles::open(folder.path());
    const auto gguf = ModelFiles::open(folder.write("tiny.gguf", tiny_llama_gguf().bytes()));
    EXPECT_EQ(hf->format(), "safetensors");
    EXPECT_EQ(gguf->format(), "GGUF v3");
    EXPECT_EQ(hf->tensors().size(), 21U);
    EXPECT_EQ(gguf->tensors().size(), 21U);
    EXPECT_EQ(gguf->total_bytes(), fs::file_size(folder.path() / "tiny.gguf"));
    const ModelWeights a = hf->weights();
    const ModelWeights b = gguf->weights();
    expect_same_but_qk(a, b);
    EXPECT_EQ(floats(a.layers[1][TensorRole::Q]), floats(b.layers[1][TensorRole::Q]));
    EXPECT_EQ(a.layers[0][TensorRole::Gate].shape[0], 12);
    EXPECT_EQ(a.layers[0][TensorRole::Gate].shape[1], 8);
    EXPECT_EQ(floats(a.layers[0][TensorRole::Gate])[9], 59.5F);
    EXPECT_TRUE(a.layers[0][TensorRole::QBias].empty());
    EXPECT_TRUE(a.layers[0][TensorRole::QNorm].empty());
    for (const FileTensor& tensor : gguf->tensors()) {
        const std::span<const std::byte> bytes(tensor.view.data, tensor.bytes);
        const std::vector<std::byte> before(bytes.begin(), bytes.end());
        EXPECT_NO_THROW(gguf->prefetch(bytes));
        EXPECT_NO_THROW(gguf->release(bytes));
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), before.begin())) << tensor.name;
    }
}

TEST(ModelFiles, OpensAConfigJsonAsItsDirectory) {
    const TempFolder folder;
    write_directory(folder, tiny_llama_safetensors());
    EXPECT_EQ(ModelFiles::open(folder.path() / "config.json")->config().d_model, 8);
    EXPECT_EQ(ModelFiles::open(folder.path() / "")->config().name, folder.path().filename().string());
}

TEST(ModelFiles, CutsFusedProjections) {
    const TempFolder folder;
    SafetensorsWriter weights = tiny_llama_safetensors();
    GgufWriter gguf = tiny_llama_gguf();
    for (int i = 0; i < 2; ++i) {
        const std::string layer = fmt::format("model.layers.{}.", i);
        for (const char* stem :
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"})
            weights.erase(fmt::format("{}{}.weight", layer, stem));
        weights.floats(layer + "self_attn.qkv_proj.weight", {16, 8})
            .floats(layer + "mlp.gate_up_proj.weight", {24, 8}, 1000);
        const std::string block = fmt::format("blk.{}.", i);
        for (const char* stem : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"})
            gguf.erase_tensor(fmt::format("{}{}.weight", block, stem));
        gguf.floats(block + "attn_qkv.weight", {16, 8}).floats(block + "ffn_up.weight", {24, 8}, 1000);
        gguf.floats(block + "attn_qkv.bias", {16});
    }
    std::string config(kTinyLlamaConfig);
    config.replace(config.find("LlamaForCausalLM"), 16, "Phi3ForCausalLM");
    write_directory(folder, weights, config);
    const auto hf_model = ModelFiles::open(folder.path());
    const auto gguf_model = ModelFiles::open(folder.write("tiny.gguf", gguf.bytes()));
    for (const auto* model : {hf_model.get(), gguf_model.get()}) {
        const LayerWeights layer = model->weights().layers[1];
        EXPECT_EQ(floats(layer[TensorRole::Q])[0], 0.5F);
        EXPECT_EQ(layer[TensorRole::Q].shape[0], 8);
        EXPECT_EQ(floats(layer[TensorRole::K])[0], 64.5F);
        EXPECT_EQ(layer[TensorRole::K].shape[0], 4);
        EXPECT_EQ(floats(layer[TensorRole::V])[0], 96.5F);
        EXPECT_EQ(floats(layer[TensorRole::Gate])[0], 1000.5F);
        EXPECT_EQ(floats(layer[TensorRole::Up])[0], 1096.5F);
        EXPECT_EQ(layer[TensorRole::Up].shape[0], 12);
    }
    const LayerWeights layer = gguf_model->weights().layers[0];
    EXPECT_EQ(floats(layer[TensorRole::KBias]), (std::vector<float>{8.5F, 9.5F, 10.5F, 11.5F}));
    EXPECT_EQ(layer[TensorRole::VBias].cols(), 4);
}

TEST(ModelFiles, BindsBiasesAndNorms) {
    SafetensorsWriter weights = tiny_llama_safetensors();
    for (int i = 0; i < 2; ++i) {
        const std::string layer = fmt::format("model.layers.{}.self_attn.", i);
        weights.floats(layer + "q_proj.bias", {8})
            .floats(layer + "k_proj.bias", {4})
            .floats(layer + "v_proj.bias", {4});
    }
    std::string qwen2(kTinyLlamaConfig);
    qwen2.replace(qwen2.find("LlamaForCausalLM"), 16, "Qwen2ForCausalLM");
    EXPECT_EQ(message(weights, qwen2), "nothing thrown");
    EXPECT_THAT(message(weights), HasSubstr("model.layers.0.self_attn.q_proj.bias is there, but the configuration"));
    EXPECT_THAT(message(tiny_llama_safetensors(), qwen2),
                HasSubstr("tensor model.layers.0.self_attn.q_proj.bias [8] is missing"));
    EXPECT_THAT(message(weights.floats("model.layers.1.self_attn.v_proj.bias", {8}), qwen2),
                HasSubstr("v_proj.bias has shape [8], the configuration asks for [4]"));

    std::string qwen3(kTinyLlamaConfig);
    qwen3.replace(qwen3.find("LlamaForCausalLM"), 16, "Qwen3ForCausalLM");
    qwen3.insert(1, "\"head_dim\": 4,");
    SafetensorsWriter normed = tiny_llama_safetensors();
    EXPECT_THAT(message(normed, qwen3), HasSubstr("self_attn.q_norm.weight [4] is missing"));
    for (int i = 0; i < 2; ++i)
        for (const char* stem : {"q_norm", "k_norm"})
            normed.floats(fmt::format("model.layers.{}.self_attn.{}.weight", i, stem), {4});
    EXPECT_EQ(message(normed, qwen3), "nothing thrown");
    EXPECT_THAT(message(normed), HasSubstr("q_norm.weight: a model with this part is not served"));
}

TEST(ModelFiles, NamesTheTensorThatIsWrong) {
    for (const std::string& name : tiny_llama_safetensors().names()) {
        SafetensorsWriter weights = tiny_llama_safetensors();
        EXPECT_THAT(message(weights.erase(name)), HasSubstr(fmt::format("tensor {} [", name)));
        EXPECT_THAT(message(tiny_llama_safetensors().floats(name, {7})),
                    HasSubstr(fmt::format("tensor {} has shape [7]", name)));
    }
    EXPECT_THAT(message(tiny_llama_gguf().erase_tensor("blk.1.ffn_down.weight")),
                HasSubstr("tiny.gguf: tensor blk.1.ffn_down.weight [8, 12] is missing"));
    EXPECT_THAT(message(tiny_llama_gguf().floats("blk.1.ffn_down.weight", {12, 8})),
                HasSubstr("has shape [12, 8], the configuration asks for [8, 12]"));
}

TEST(ModelFiles, RefusesTypesOnlyWhereTheModelNeedsThem) {
    SafetensorsWriter weights = tiny_llama_safetensors();
    weights.tensor("extra.inv_freq", "I64", {2}, std::string(16, '\0'));
    EXPECT_EQ(message(weights), "nothing thrown");
    weights.tensor("model.layers.0.mlp.up_proj.weight", "F8_E4M3", {12, 8}, std::string(96, '\0'));
    EXPECT_THAT(message(weights),
                HasSubstr("model.layers.0.mlp.up_proj.weight has type F8_E4M3, which is not served (served: F32"));
    GgufWriter gguf = tiny_llama_gguf();
    gguf.tensor("blk.0.ffn_gate.weight", 28, {12, 8}, std::string(96 * 8, '\0'));
    EXPECT_THAT(message(gguf), HasSubstr("tensor blk.0.ffn_gate.weight has type F64"));
    EXPECT_THAT(message(gguf), HasSubstr("; use a file of the same model of the kind BF16, F16, Q8_0, Q6_K"));
    const TempFolder folder;
    const auto model = ModelFiles::open(folder.write("tiny.gguf", gguf.bytes()));
    const auto& tensors = model->tensors();
    const auto f64 = std::find_if(tensors.begin(), tensors.end(), [](const auto& t) { return t.type_name == "F64"; });
    ASSERT_NE(f64, tensors.end());
    EXPECT_TRUE(f64->view.empty());
    EXPECT_THAT(f64->shape, ElementsAre(12, 8));
    EXPECT_THAT(message(tiny_llama_gguf().tensor("output_norm.weight", 8, {32}, std::string(34, '\0'))),
                HasSubstr("shape [32]"));
    EXPECT_THAT(message(tiny_llama_gguf().floats("blk.0.ffn_gate.bias", {12})),
                HasSubstr("ffn_gate.bias: a model with this part"));
}

TEST(ModelFiles, OpensSplitGguf) {
    const auto part = [](int number, int count) {
        GgufWriter writer;
        if (number == 0) writer = tiny_llama_gguf();
        writer.set<std::uint16_t>("split.no", static_cast<std::uint16_t>(number));
        writer.set<std::uint16_t>("split.count", static_cast<std::uint16_t>(count));
        return writer.set<std::int32_t>("split.tensors.count", 21);
    };
    GgufWriter first = part(0, 3);
    GgufWriter second = part(1, 3);
    GgufWriter third = part(2, 3);
    first.erase_tensor("blk.1.ffn_up.weight").erase_tensor("blk.1.ffn_down.weight");
    second.floats("blk.1.ffn_up.weight", {12, 8}, 60);
    third.floats("blk.1.ffn_down.weight", {8, 12}, 70);
    const TempFolder folder;
    const fs::path path = folder.write("m-00001-of-00003.gguf", first.bytes());
    folder.write("m-00002-of-00003.gguf", second.bytes());
    EXPECT_THAT(message(path), HasSubstr("m-00003-of-00003.gguf: part 3 of 3 of the model is missing"));
    folder.write("m-00003-of-00003.gguf", third.bytes());
    const auto model = ModelFiles::open(path);
    EXPECT_EQ(model->paths().size(), 3U);
    const auto whole = ModelFiles::open(folder.write("whole.gguf", tiny_llama_gguf().bytes()));
    expect_same_but_qk(model->weights(), whole->weights());
    EXPECT_NO_THROW(model->prefetch({model->tensors().back().view.data, model->tensors().back().bytes}));

    EXPECT_THAT(message(folder.path() / "m-00002-of-00003.gguf"), HasSubstr("open the first, m-00001-of-00003.gguf"));
    EXPECT_THAT(message(folder.write("other.gguf", first.bytes())),
                HasSubstr("must be named NAME-00001-of-00003.gguf"));
    folder.write("m-00003-of-00003.gguf", second.bytes());
    EXPECT_THAT(message(path), HasSubstr("claims to be part 2 of 3, not part 3 of 3"));
    folder.write("m-00003-of-00003.gguf", part(2, 3).bytes());
    EXPECT_THAT(message(path), HasSubstr("20 tensors in all 3 parts, split.tensors.count says 21"));
    folder.write("m-00003-of-00003.gguf", part(2, 3).floats("blk.1.ffn_up.weight", {12, 8}).bytes());
    EXPECT_THAT(message(path), HasSubstr("tensor blk.1.ffn_up.weight is in two"));
}

TEST(ModelFiles, OpensShards) {
    const TempFolder folder;
    folder.write("config.json", kTinyLlamaConfig);
    SafetensorsWriter first = tiny_llama_safetensors();
    SafetensorsWriter second;
    std::string map;
    for (const std::string& name : first.names())
        map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name,
                           name.starts_with("model.norm") ? "model-2.safetensors" : "model-1.safetensors");
    first.erase("model.norm.weight");
    second.floats("model.norm.weight", {8}, 1);
    const auto write_index = [&](const std::string& weight_map) {
        folder.write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + weight_map + "}}");
    };
    write_index(map);
    folder.write("model-1.safetensors", first.bytes());
    EXPECT_THAT(message(folder.path()),
                HasSubstr("model-2.safetensors: missing, though model.safetensors.index.json lists it"));
    folder.write("model-2.safetensors", second.bytes());
    const auto model = ModelFiles::open(folder.path());
    EXPECT_EQ(model->paths().size(), 2U);
    EXPECT_EQ(floats(model->weights().output_norm)[0], 1.5F);

    write_index(map + ",\"phantom\":\"model-1.safetensors\"");
    EXPECT_THAT(message(folder.path()), HasSubstr("model-1.safetensors: tensor phantom is missing"));
    write_index(map + ",\"phantom\":\"../model-1.safetensors\"");
    EXPECT_THAT(message(folder.path()), HasSubstr("not a plain name"));
    write_index("");
    EXPECT_THAT(message(folder.path()), HasSubstr("weight_map is missing or empty"));
    write_index(map);
    folder.write("model-1.safetensors", tiny_llama_safetensors().bytes());
    EXPECT_THAT(message(folder.path()), HasSubstr("tensor model.norm.weight is in"));
}

TEST(ModelFiles, FindsTokenizerTemplateAndDefaults) {
    const TempFolder folder;
    write_directory(folder, tiny_llama_safetensors());
    EXPECT_THAT(ModelFiles::open(folder.path())->generation_defaults().end_tokens, ElementsAre(2));
    EXPECT_TRUE(ModelFiles::open(folder.path())->tokenizer_source().tokenizer_json.empty());
    folder.write("tokenizer.model", "x");
    folder.write("tokenizer.json", "{}");
    folder.write("tekken.json", "{}");
    folder.write("generation_config.json", R"({"eos_token_id":[3,4,99999],"top_k":5})");
    folder.write("tokenizer_config.json", R"({"add_bos_token":true,"chat_template":"hello"})");
    auto model = ModelFiles::open(folder.path());
    EXPECT_EQ(model->tokenizer_source().sentencepiece_model, folder.path() / "tokenizer.model");
    EXPECT_EQ(model->tokenizer_source().tokenizer_json, folder.path() / "tokenizer.json");
    EXPECT_EQ(model->tokenizer_source().tekken_json, folder.path() / "tekken.json");
    EXPECT_EQ(model->tokenizer_source().bos_id, 1);
    EXPECT_EQ(model->tokenizer_source().add_bos, true);
    EXPECT_EQ(model->chat_template(), "hello");
    EXPECT_THAT(model->generation_defaults().end_tokens, ElementsAre(3, 4));
    EXPECT_EQ(model->generation_defaults().top_k, 5);
    folder.write("tokenizer_config.json",
                 R"({"chat_template":[{"name":"tool_use","template":"a"},{"name":"default","template":"b"}]})");
    EXPECT_EQ(ModelFiles::open(folder.path())->chat_template(), "b");
    folder.write("chat_template.jinja", "c");
    EXPECT_EQ(ModelFiles::open(folder.path())->chat_template(), "c");
}

// Without its side files a model generates other text; so what cannot be looked at is an error, what is absent is not.
TEST(ModelFiles, ASideFileThatCannotBeReadIsAnError) {
    for (const char* name : {"generation_config.json", "tokenizer_config.json", "chat_template.jinja",
                             "tokenizer.model", "tokenizer.json", "tekken.json", "vocab.json", "merges.txt"}) {
        const TempFolder folder;
        write_directory(folder, tiny_llama_safetensors());
        const fs::path path = folder.path() / name;
        fs::create_symlink("nowhere", path);
        EXPECT_EQ(message(folder.path()), "nothing thrown") << "nothing is behind the link " << name;
        fs::remove(path);
        fs::create_symlink(name, path);  // a loop: refused by the system, for the superuser too
        EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(ModelFiles::open(folder.path())); }),
                    HasSubstr("cannot read " + path.string()));
    }
}

TEST(ModelFiles, ASideFileWithoutPermissionIsAnError) {
    if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
    const TempFolder folder;
    write_directory(folder, tiny_llama_safetensors());
    for (const char* name : {"generation_config.json", "tokenizer_config.json", "chat_template.jinja"}) {
        const fs::path path = folder.write(name, "{}");
        fs::permissions(path, fs::perms::none);
        EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(ModelFiles::open(folder.path())); }),
                    HasSubstr(path.string()));
        fs::remove(path);
    }
}

TEST(ModelFiles, SaysWhatIsNotAModel) {
    const TempFolder folder;
    EXPECT_THAT(message(folder.path()), EndsWith("a directory without a model (no config.json, no GGUF file)"));
    EXPECT_THAT(message(folder.path() / "absent"), HasSubstr("absent: No such file or directory"));
    EXPECT_THAT(message(folder.write("a.txt", "Once upon a time")),
                HasSubstr("not a GGUF file: it starts with \"Once\""));
    EXPECT_THAT(message(folder.write("e.gguf", "")), HasSubstr("truncated"));
    EXPECT_THAT(message(folder.write("m.safetensors", "")), HasSubstr("open the directory that holds it"));
    folder.write("q4.gguf", "");
    EXPECT_THAT(message(folder.path()), HasSubstr("name one of its 2 GGUF files, e.g. e.gguf"));
    folder.write("config.json", kTinyLlamaConfig);
    EXPECT_THAT(message(folder.path()), HasSubstr("no model.safetensors and no model.safetensors.index.json"));
    folder.write("pytorch_model.bin", "x");
    EXPECT_THAT(message(folder.path()), HasSubstr("convert the pytorch_model.bin"));
}

TEST(ModelFiles, EveryCutOfABundledModelIsAnError) {
    const std::string whole = read_file(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/draft/model.safetensors");
    ASSERT_GT(whole.size(), 1000000U);
    const TempFolder folder;
    folder.write("config.json", read_file(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/draft/config.json"));
    for (std::size_t i = 0; i < 64; ++i) {
        folder.write("model.safetensors", std::string_view(whole).substr(0, whole.size() * i / 64));
        EXPECT_THAT(message(folder.path()), HasSubstr("model.safetensors")) << i;
    }
    folder.write("model.safetensors", whole);
    EXPECT_EQ(message(folder.path()), "nothing thrown");
}

TEST(ModelFiles, OpensTheBundledModels) {
    for (const char* name : {"target", "draft"}) {
        const auto model = ModelFiles::open(fs::path(SLIPSTREAM_SOURCE_DIR "/tools/demo_model") / name);
        EXPECT_EQ(model->config().vocab, 4096);
        EXPECT_EQ(model->config().context_tokens, 8192);
        EXPECT_EQ(model->config().ropes[0].theta, 50000.0);
        EXPECT_EQ(model->config().kv_dtype, DType::BF16);
        EXPECT_TRUE(model->config().tied_embeddings);
        EXPECT_FALSE(model->tokenizer_source().sentencepiece_model.empty());
        const ModelWeights weights = model->weights();
        EXPECT_EQ(weights.lm_head.data, weights.token_embedding.data);
        EXPECT_EQ(weights.layers.size(), static_cast<std::size_t>(model->config().n_layers()));
        EXPECT_EQ(weights.layers[0][TensorRole::Q].dtype, DType::BF16);
        EXPECT_FALSE(model->metadata().empty());
    }
}

TEST(ModelFiles, BothFormsOfStoriesAgree) {
    const fs::path folder = kShared / "data/stories260K";
    if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
    const auto hf = ModelFiles::open(folder / "hf");
    const auto gguf = ModelFiles::open(folder / "stories260K-f32.gguf");
    const ModelConfig& a = hf->config();
    const ModelConfig& b = gguf->config();
    EXPECT_EQ(a.d_model, b.d_model);
    ASSERT_EQ(a.n_layers(), b.n_layers());
    for (std::int64_t i = 0; i < a.n_layers(); ++i) {
        EXPECT_EQ(a.attention(i), b.attention(i));
        EXPECT_EQ(a.layers[i].feed_forward, b.layers[i].feed_forward);
    }
    EXPECT_EQ(a.vocab, b.vocab);
    EXPECT_EQ(a.context_tokens, b.context_tokens);
    EXPECT_EQ(a.rms_eps, b.rms_eps);
    EXPECT_EQ(a.ropes[0].theta, b.ropes[0].theta);
    EXPECT_EQ(a.ropes[0].n_rotated, b.ropes[0].n_rotated);
    EXPECT_EQ(a.kv_dtype, b.kv_dtype);
    EXPECT_EQ(hf->generation_defaults().end_tokens, gguf->generation_defaults().end_tokens);
    const ModelWeights wa = hf->weights();
    const ModelWeights wb = gguf->weights();
    expect_same_but_qk(wa, wb);
    // The converter puts row i of a head's first half at 2i and of its second at 2i + 1.
    const auto expect_permuted = [&](ConstTensorView plain, ConstTensorView permuted) {
        ASSERT_EQ(plain.shape, permuted.shape);
        const std::int64_t half = a.attention(0).head_dim / 2;
        for (std::int64_t row = 0; row < plain.rows(); ++row) {
            const std::int64_t in_head = row % a.attention(0).head_dim;
            const std::int64_t to = row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
            ASSERT_EQ(std::memcmp(plain.row(row), permuted.row(to), plain.row_stride_bytes), 0) << row;
        }
    };
    for (std::size_t i = 0; i < wa.layers.size(); ++i) {
        expect_permuted(wa.layers[i][TensorRole::Q], wb.layers[i][TensorRole::Q]);
        expect_permuted(wa.layers[i][TensorRole::K], wb.layers[i][TensorRole::K]);
    }
}

TEST(ModelFiles, OpensEveryKindOfQuantisedFile) {
    const fs::path folder = kShared / "models/fairy/gguf";
    if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here";
    std::size_t n_files = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        SCOPED_TRACE(entry.path().filename().string());
        const auto model = ModelFiles::open(entry.path());
        const ModelWeights weights = model->weights();
        EXPECT_EQ(model->config().vocab, 4096);
        EXPECT_EQ(weights.layers.size(), static_cast<std::size_t>(model->config().n_layers()));
        const bool quantised = is_quantized(weights.layers[0][TensorRole::Q].dtype);
        EXPECT_EQ(model->config().kv_dtype, quantised ? DType::F16 : weights.layers[0][TensorRole::Q].dtype);
        ++n_files;
    }
    EXPECT_EQ(n_files, 12U);
}

TEST(ModelFiles, EveryCutOfARealGgufIsAnError) {
    const fs::path path = kShared / "data/stories260K/stories260K-f32.gguf";
    if (!fs::exists(path)) GTEST_SKIP() << path << " is not here";
    const std::string whole = read_file(path);
    const TempFolder folder;
    for (std::size_t i = 0; i < 64; ++i)
        EXPECT_THAT(message(folder.write("cut.gguf", std::string_view(whole).substr(0, whole.size() * i / 64))),
                    HasSubstr("cut.gguf"))
            << i;
}

}  // namespace
}  // namespace slipstream
