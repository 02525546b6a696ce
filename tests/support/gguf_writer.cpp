#include "tests/support/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace slipstream {

namespace {

template <typename T>
void put(std::string& out, T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
    put<std::uint64_t>(out, text.size());
    out += text;
}

template <typename T>
GgufBytes scalar(std::uint32_t type, T value) {
    GgufBytes bytes{type, {}};
    put(bytes.content, value);
    return bytes;
}

}  // namespace

template <>
GgufBytes gguf_scalar(std::uint8_t value) {
    return scalar(0, value);
}
template <>
GgufBytes gguf_scalar(std::int8_t value) {
    return scalar(1, value);
}
template <>
GgufBytes gguf_scalar(std::uint16_t value) {
    return scalar(2, value);
}
template <>
GgufBytes gguf_scalar(std::int16_t value) {
    return scalar(3, value);
}
template <>
GgufBytes gguf_scalar(std::uint32_t value) {
    return scalar(4, value);
}
template <>
GgufBytes gguf_scalar(std::int32_t value) {
    return scalar(5, value);
}
template <>
GgufBytes gguf_scalar(float value) {
    return scalar(6, value);
}
template <>
GgufBytes gguf_scalar(bool value) {
    return scalar<std::uint8_t>(7, value ? 1 : 0);
}
template <>
GgufBytes gguf_scalar(std::uint64_t value) {
    return scalar(10, value);
}
template <>
GgufBytes gguf_scalar(std::int64_t value) {
    return scalar(11, value);
}
template <>
GgufBytes gguf_scalar(double value) {
    return scalar(12, value);
}

GgufBytes gguf_string(std::string_view text) {
    GgufBytes bytes{8, {}};
    put_string(bytes.content, text);
    return bytes;
}

GgufBytes gguf_array(const std::vector<GgufBytes>& elements, std::uint32_t empty_type) {
    GgufBytes bytes{9, {}};
    put<std::uint32_t>(bytes.content, elements.empty() ? empty_type : elements.front().type);
    put<std::uint64_t>(bytes.content, elements.size());
    for (const GgufBytes& element : elements) {
        if (element.type != elements.front().type) throw std::logic_error("an array of mixed types");
        bytes.content += element.content;
    }
    return bytes;
}

GgufWriter& GgufWriter::set(const std::string& key, GgufBytes value) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found == entries_.end()) {
        entries_.emplace_back(key, std::move(value));
    } else {
        found->second = std::move(value);
    }
    return *this;
}

GgufWriter& GgufWriter::erase(const std::string& key) {
    if (std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; }) != 1)
        throw std::logic_error("no key " + key);
    return *this;
}

GgufWriter& GgufWriter::tensor(const std::string& name, std::uint32_t type, std::vector<std::int64_t> shape,
                               std::string data) {
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& tensor) { return tensor.name == name; });
    if (found == tensors_.end()) {
        tensors_.push_back({name, type, std::move(shape), std::move(data)});
    } else {
        *found = {name, type, std::move(shape), std::move(data)};
    }
    return *this;
}

GgufWriter& GgufWriter::floats(const std::string& name, std::vector<std::int64_t> shape, float first) {
    std::int64_t count = 1;
    for (const std::int64_t length : shape) count *= length;
    std::string data;
    for (std::int64_t i = 0; i < count; ++i) put(data, first + static_cast<float>(i) + 0.5F);
    return tensor(name, 0, std::move(shape), std::move(data));
}

GgufWriter& GgufWriter::erase_tensor(const std::string& name) {
    if (std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; }) != 1)
        throw std::logic_error("no tensor " + name);
    return *this;
}

std::string GgufWriter::header() const {
    std::string out = "GGUF";
    put(out, version);
    put<std::uint64_t>(out, forged_tensor_count != 0 ? forged_tensor_count : tensors_.size());
    put<std::uint64_t>(out, forged_entry_count != 0 ? forged_entry_count : entries_.size());
    for (const auto& [key, value] : entries_) {
        put_string(out, key);
        put(out, value.type);
        out += value.content;
    }
    std::uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
        put_string(out, tensor.name);
        put<std::uint32_t>(out, static_cast<std::uint32_t>(tensor.shape.size()));
        for (auto length = tensor.shape.rbegin(); length != tensor.shape.rend(); ++length)
            put<std::uint64_t>(out, static_cast<std::uint64_t>(*length));
        put(out, tensor.type);
        const auto forged = forged_offsets.find(tensor.name);
        put<std::uint64_t>(out, forged == forged_offsets.end() ? offset : forged->second);
        offset = (offset + tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    return out;
}

std::string GgufWriter::bytes() const {
    std::string out = header();
    const auto pad = [&] { out.resize((out.size() + alignment - 1) / alignment * alignment, '\0'); };
    for (const Tensor& tensor : tensors_) {
        pad();
        out += tensor.data;
    }
    return out;
}

GgufWriter tiny_llama_gguf() {
    GgufWriter writer;
    writer.set("general.architecture", "llama").set("general.name", "tiny");
    writer.set<std::uint32_t>("llama.context_length", 32).set<std::uint32_t>("llama.embedding_length", 8);
    writer.set<std::uint32_t>("llama.block_count", 2).set<std::uint32_t>("llama.feed_forward_length", 12);
    writer.set<std::uint32_t>("llama.attention.head_count", 2).set<std::uint32_t>("llama.attention.head_count_kv", 1);
    writer.set("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    writer.set("tokenizer.ggml.model", "llama");
    std::vector<GgufBytes> tokens, scores, types;
    for (int i = 0; i < 10; ++i) {
        tokens.push_back(gguf_string(fmt::format("t{}", i)));
        scores.push_back(gguf_scalar(-static_cast<float>(i)));
        types.push_back(gguf_scalar<std::int32_t>(i < 3 ? 3 : 1));
    }
    writer.set("tokenizer.ggml.tokens", gguf_array(tokens)).set("tokenizer.ggml.scores", gguf_array(scores));
    writer.set("tokenizer.ggml.token_type", gguf_array(types));
    writer.set<std::uint32_t>("tokenizer.ggml.bos_token_id", 1).set<std::uint32_t>("tokenizer.ggml.eos_token_id", 2);
    writer.floats("token_embd.weight", {10, 8})
        .floats("output_norm.weight", {8}, 1)
        .floats("output.weight", {10, 8}, 2);
    for (int i = 0; i < 2; ++i) {
        const auto name = [&](const char* stem) { return fmt::format("blk.{}.{}.weight", i, stem); };
        writer.floats(name("attn_norm"), {8}).floats(name("attn_q"), {8, 8}, 10).floats(name("attn_k"), {4, 8}, 20);
        writer.floats(name("attn_v"), {4, 8}, 30).floats(name("attn_output"), {8, 8}, 40).floats(name("ffn_norm"), {8});
        writer.floats(name("ffn_gate"), {12, 8}, 50).floats(name("ffn_up"), {12, 8}, 60);
        writer.floats(name("ffn_down"), {8, 12}, 70);
    }
    return writer;
}

}  // namespace slipstream
