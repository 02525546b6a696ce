#include "tests/support/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace slipstream {

std::string safetensors_bytes(std::string_view header, std::string_view data) {
    const auto length = static_cast<std::uint64_t>(header.size());
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    out += header;
    out += data;
    return out;
}

SafetensorsWriter& SafetensorsWriter::tensor(const std::string& name, const std::string& type,
                                             std::vector<std::int64_t> shape, std::string data) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
    tensors_.push_back({name, type, std::move(shape), std::move(data)});
    return *this;
}

SafetensorsWriter& SafetensorsWriter::floats(const std::string& name, std::vector<std::int64_t> shape, float first) {
    std::int64_t count = 1;
    for (const std::int64_t length : shape) count *= length;
    std::string data;
    for (std::int64_t i = 0; i < count; ++i) {
        const float value = first + static_cast<float>(i) + 0.5F;
        char raw[sizeof value];
        std::memcpy(raw, &value, sizeof value);
        data.append(raw, sizeof value);
    }
    return tensor(name, "F32", std::move(shape), std::move(data));
}

SafetensorsWriter& SafetensorsWriter::erase(const std::string& name) {
    if (std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; }) != 1)
        throw std::logic_error("no tensor " + name);
    return *this;
}

std::vector<std::string> SafetensorsWriter::names() const {
    std::vector<std::string> names;
    for (const Tensor& tensor : tensors_) names.push_back(tensor.name);
    return names;
}

std::string SafetensorsWriter::bytes() const {
    std::string header = R"({"__metadata__":{"format":"pt"})";
    std::string data;
    for (const Tensor& tensor : tensors_) {
        header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name, tensor.type,
                              fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.data.size());
        data += tensor.data;
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return safetensors_bytes(header, data);
}

SafetensorsWriter tiny_llama_safetensors() {
    SafetensorsWriter writer;
    writer.floats("model.embed_tokens.weight", {10, 8}).floats("model.norm.weight", {8}, 1);
    writer.floats("lm_head.weight", {10, 8}, 2);
    for (int i = 0; i < 2; ++i) {
        const auto name = [&](const char* stem) { return fmt::format("model.layers.{}.{}.weight", i, stem); };
        writer.floats(name("input_layernorm"), {8}).floats(name("self_attn.q_proj"), {8, 8}, 10);
        writer.floats(name("self_attn.k_proj"), {4, 8}, 20).floats(name("self_attn.v_proj"), {4, 8}, 30);
        writer.floats(name("self_attn.o_proj"), {8, 8}, 40).floats(name("post_attention_layernorm"), {8});
        writer.floats(name("mlp.gate_proj"), {12, 8}, 50).floats(name("mlp.up_proj"), {12, 8}, 60);
        writer.floats(name("mlp.down_proj"), {8, 12}, 70);
    }
    return writer;
}

}  // namespace slipstream
