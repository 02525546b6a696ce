// GGUF version 3 (docs/gguf.md of ggml): magic, counts, key-value pairs, tensor table; little-endian, each text after
// its length.
#include "tools/lab/random_model/random_model_header.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "runtime/formats/family.h"
#include "runtime/formats/gguf_types.h"

namespace slipstream::tools {

namespace {

// Returns the number of a type in GGUF files.
std::uint32_t ggml_type_id(DType type) {
    for (std::uint32_t id = 0; id < 64; ++id)
        if (const GgmlType* entry = find_ggml_type(id); entry != nullptr && entry->dtype == type) return id;
    CHECK(false, "no ggml type is {}", dtype_name(type));
    return 0;
}

// Bytes of key-value pairs or of the tensor table.
class Header {
public:
    template <typename T>
    void put(T value) {
        const auto* raw = reinterpret_cast<const char*>(&value);
        bytes_.append(raw, sizeof(T));
    }
    void put_text(std::string_view text) {
        put<std::uint64_t>(text.size());
        bytes_ += text;
    }
    void text(std::string_view key, std::string_view value) {
        begin(key, 8);
        put_text(value);
    }
    void number(std::string_view key, std::int64_t value) {
        begin(key, 4);
        put(static_cast<std::uint32_t>(value));
    }
    void real(std::string_view key, double value) {
        begin(key, 6);
        put(static_cast<float>(value));
    }
    void boolean(std::string_view key, std::uint8_t value) {
        begin(key, 7);
        put(value);
    }
    void begin_array(std::string_view key, std::uint32_t type, std::int64_t length) {
        begin(key, 9);
        put(type);
        put(static_cast<std::uint64_t>(length));
    }
    [[nodiscard]] std::uint64_t n_entries() const { return n_entries_; }
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

private:
    void begin(std::string_view key, std::uint32_t type) {
        put_text(key);
        put(type);
        ++n_entries_;
    }
    std::string bytes_;
    std::uint64_t n_entries_ = 0;
};

// Returns the piece of an id: <unk>, <s>, the 256 bytes (if vocab is at least 258), then one word per id:
// SentencePiece's sign for a space and the id in letters.
std::string piece(std::int64_t id, std::int64_t vocab) {
    if (id == 0) return "<unk>";
    if (id == 1) return "<s>";
    if (vocab >= 258 && id < 258) return fmt::format("<0x{:02X}>", id - 2);
    std::string word;
    for (std::int64_t rest = id; rest >= 0; rest = rest / 26 - 1)
        word.insert(word.begin(), static_cast<char>('a' + rest % 26));
    return "\xe2\x96\x81" + word;
}

std::int32_t piece_type(std::int64_t id, std::int64_t vocab) {
    if (id == 0) return 2;                    // unknown
    if (id == 1) return 3;                    // control
    return vocab >= 258 && id < 258 ? 6 : 1;  // byte or normal
}

void put_tokenizer(Header& header, std::int64_t vocab) {
    header.text("tokenizer.ggml.model", "llama");
    header.begin_array("tokenizer.ggml.tokens", 8, vocab);
    for (std::int64_t id = 0; id < vocab; ++id) header.put_text(piece(id, vocab));
    header.begin_array("tokenizer.ggml.scores", 6, vocab);
    for (std::int64_t id = 0; id < vocab; ++id) header.put(-static_cast<float>(id));
    header.begin_array("tokenizer.ggml.token_type", 5, vocab);
    for (std::int64_t id = 0; id < vocab; ++id) header.put(piece_type(id, vocab));
    header.number("tokenizer.ggml.unknown_token_id", 0);
    header.number("tokenizer.ggml.bos_token_id", 1);
    header.boolean("tokenizer.ggml.add_bos_token", 1);
}

// Returns whether layers have a dense feed-forward beside their experts, with the names that it has without them.
bool has_dense_part(const ModelConfig& config) {
    const TensorNames& names = gguf_family(config).gguf_names;
    return config.has_experts() && names.shared_expert[expert_tensor(TensorRole::Gate)] == names[TensorRole::Gate];
}

void put_experts(Header& header, const ModelConfig& config, std::string_view architecture) {
    if (!config.has_experts()) return;
    const auto key = [&](std::string_view suffix) { return fmt::format("{}.{}", architecture, suffix); };
    const LayerConfig& last = config.layers.back();
    const ExpertsConfig& experts = last.feed_forward.experts;
    header.number(key("expert_count"), experts.n_experts);
    header.number(key("expert_used_count"), experts.n_chosen);
    header.number(key("expert_feed_forward_length"), experts.d_ff);
    if (last.feed_forward.d_ff == 0 || has_dense_part(config)) return;
    header.number(key("expert_shared_count"), last.feed_forward.d_ff / experts.d_ff);
    header.number(key("expert_shared_feed_forward_length"), last.feed_forward.d_ff);
    header.number(key("leading_dense_block_count"), std::ranges::count_if(config.layers, [](const LayerConfig& layer) {
                      return layer.feed_forward.experts.empty();
                  }));
}

void put_delta_nets(Header& header, const RandomModelOptions& options, std::string_view architecture) {
    const ModelConfig& config = options.config;
    const auto found = std::ranges::find_if(config.layers, [](const LayerConfig& l) { return !l.has_attention(); });
    if (found == config.layers.end()) return;
    const auto key = [&](std::string_view suffix) { return fmt::format("{}.{}", architecture, suffix); };
    const DeltaNetShape& shape = found->delta_net().shape;
    header.number(key("ssm.conv_kernel"), shape.conv_width);
    header.number(key("ssm.state_size"), shape.key_dim);
    header.number(key("ssm.group_count"), shape.n_key_heads);
    header.number(key("ssm.time_step_rank"), shape.n_value_heads);
    header.number(key("ssm.inner_size"), shape.value_cols());
    header.begin_array(key("attention.recurrent_layers"), 7, config.n_layers() + (options.has_head ? 1 : 0));
    for (const LayerConfig& layer : config.layers) header.put(std::uint8_t{!layer.has_attention()});
    if (options.has_head) header.put(std::uint8_t{0});
}

// How many of the rotated pairs follow time, height and width of an image. In a text the three are equal, but llama.cpp
// reads no file of these families without the numbers.
void put_rope_sections(Header& header, std::string_view architecture, std::int64_t n_rotated) {
    if (!architecture.starts_with("qwen35")) return;
    const std::int64_t pairs = n_rotated / 2;
    const std::int64_t third = (pairs + 2) / 3;
    header.begin_array(fmt::format("{}.rope.dimension_sections", architecture), 5, 4);
    for (const std::int64_t n : {third, third, std::max(pairs - 2 * third, std::int64_t{0}), std::int64_t{0}})
        header.put(static_cast<std::int32_t>(n));
}

void put_config(Header& header, const RandomModelOptions& options) {
    const ModelConfig& config = options.config;
    const std::string_view architecture = gguf_family(config).gguf_name;
    // Layers with attention are of at most two kinds: with a window and without.
    const auto layer_with = [&](bool has_window) {
        return std::ranges::find_if(config.layers, [&](const LayerConfig& layer) {
            return layer.has_attention() && (layer.window() > 0) == has_window;
        });
    };
    const auto full = layer_with(false);
    const auto windowed = layer_with(true);
    const AttentionConfig& attention = full != config.layers.end() ? full->attention() : windowed->attention();
    // Layers without a window may have no RoPE.
    const RopeConfig& rope = attention.rope == kNoRope ? config.ropes.front() : config.ropes[attention.rope];
    const auto key = [&](std::string_view suffix) { return fmt::format("{}.{}", architecture, suffix); };
    header.text("general.architecture", architecture);
    header.text("general.name", fmt::format("{} {} of random weights, seed {}", config.name,
                                            quantisation_name(options.quantisation), options.seed));
    header.number("general.alignment", kGgufAlignment);
    header.number(key("context_length"), config.context_tokens);
    header.number(key("embedding_length"), config.d_model);
    header.number(key("block_count"), config.n_layers() + (options.has_head ? 1 : 0));
    if (options.has_head) header.number(key("nextn_predict_layers"), 1);
    header.number(key("feed_forward_length"),
                  has_dense_part(config) ? config.layers.back().feed_forward.d_ff : config.max_d_ff());
    put_experts(header, config, architecture);
    put_delta_nets(header, options, architecture);
    header.number(key("attention.head_count"), attention.n_q_heads);
    if (windowed != config.layers.end() && windowed->attention().n_kv_heads != attention.n_kv_heads) {
        header.begin_array(key("attention.head_count_kv"), 5, config.n_layers());
        for (const LayerConfig& layer : config.layers)
            header.put(static_cast<std::int32_t>(layer.attention().n_kv_heads));
    } else {
        header.number(key("attention.head_count_kv"), attention.n_kv_heads);
    }
    header.number(key("attention.key_length"), attention.head_dim);
    header.number(key("attention.value_length"), attention.head_dim);
    header.number(key("rope.dimension_count"), rope.n_rotated);
    put_rope_sections(header, architecture, rope.n_rotated);
    header.real(key("rope.freq_base"), rope.theta);
    if (rope.scaling.kind == RopeScalingKind::Yarn) {
        header.text(key("rope.scaling.type"), "yarn");
        header.real(key("rope.scaling.factor"), rope.scaling.factor);
        header.number(key("rope.scaling.original_context_length"), rope.scaling.original_context);
    }
    // llama.cpp reads no file of this family without the number of per-layer embeddings.
    if (&gguf_family(config) == &kGemma4) header.number(key("embedding_length_per_layer_input"), 0);
    const std::int64_t window = config.largest([](const LayerConfig& layer) { return layer.window(); });
    if (window > 0) header.number(key("attention.sliding_window"), window);
    if (full != config.layers.end() && windowed != config.layers.end()) {
        header.begin_array(key("attention.sliding_window_pattern"), 7, config.n_layers());
        for (const LayerConfig& layer : config.layers) header.put(std::uint8_t{layer.attention().window > 0});
        const AttentionConfig& heads = windowed->attention();
        header.number(key("attention.key_length_swa"), heads.head_dim);
        header.number(key("attention.value_length_swa"), heads.head_dim);
        header.number(key("rope.dimension_count_swa"), config.ropes[heads.rope].n_rotated);
        header.real(key("rope.freq_base_swa"), config.ropes[heads.rope].theta);
    }
    if (config.logit_softcap > 0.0F) header.real(key("final_logit_softcapping"), config.logit_softcap);
    header.real(key("attention.layer_norm_rms_epsilon"), config.rms_eps);
}

}  // namespace

const Family& gguf_family(const ModelConfig& config) {
    const Family& family = find_family(config.family);
    return family.gguf_name.empty() ? kLlama : family;
}

std::string gguf_header(const RandomModelOptions& options, const std::vector<RandomTensor>& tensors) {
    Header entries;
    put_config(entries, options);
    put_tokenizer(entries, options.config.vocab);
    Header header;
    header.put(std::uint32_t{0x46554747});  // "GGUF"
    header.put(std::uint32_t{3});
    header.put(static_cast<std::uint64_t>(tensors.size()));
    header.put(entries.n_entries());
    Header table;
    std::uint64_t offset = 0;
    for (const RandomTensor& tensor : tensors) {
        table.put_text(tensor.name);
        table.put(static_cast<std::uint32_t>(tensor.shape.size()));
        for (auto length = tensor.shape.rbegin(); length != tensor.shape.rend(); ++length)
            table.put(static_cast<std::uint64_t>(*length));
        table.put(ggml_type_id(tensor.type));
        table.put(offset);
        offset += gguf_padded(tensor.bytes());
    }
    std::string bytes = header.bytes() + entries.bytes() + table.bytes();
    bytes.resize(gguf_padded(bytes.size()), '\0');
    return bytes;
}

}  // namespace slipstream::tools
