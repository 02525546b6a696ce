// Writes GGUF files for tests, sound ones and, by its raw parts, broken ones. Values are replaced by setting their key
// again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// A value's bytes as they stand behind its key: the type number, then the content.
struct GgufBytes {
    std::uint32_t type = 0;
    std::string content;
};

/// One scalar; T picks the type (bool, the eight integers, float, double).
template <typename T>
[[nodiscard]] GgufBytes gguf_scalar(T value);
[[nodiscard]] GgufBytes gguf_string(std::string_view text);
/// An array of values, all of the type of the first (`empty_type` where there is none); arrays nest.
[[nodiscard]] GgufBytes gguf_array(const std::vector<GgufBytes>& elements, std::uint32_t empty_type = 4);

class GgufWriter {
public:
    GgufWriter& set(const std::string& key, GgufBytes value);
    template <typename T>
    GgufWriter& set(const std::string& key, T value) {
        return set(key, gguf_scalar(value));
    }
    GgufWriter& set(const std::string& key, const char* text) { return set(key, gguf_string(text)); }
    GgufWriter& erase(const std::string& key);

    /// `shape` row-major; `type` is ggml's number. Replaces a tensor of that name.
    GgufWriter& tensor(const std::string& name, std::uint32_t type, std::vector<std::int64_t> shape, std::string data);
    /// F32 tensor with values 0.5, 1.5, 2.5, ... plus `first`.
    GgufWriter& floats(const std::string& name, std::vector<std::int64_t> shape, float first = 0.0F);
    GgufWriter& erase_tensor(const std::string& name);

    std::uint32_t version = 3;
    std::size_t alignment = 32;  // of the data; does not write the key
    /// Forged fields: a tensor's offset, the header's counts (0 = the true ones).
    std::map<std::string, std::uint64_t> forged_offsets;
    std::uint64_t forged_tensor_count = 0;
    std::uint64_t forged_entry_count = 0;

    [[nodiscard]] std::string bytes() const;
    /// Length of the header alone, without padding and data.
    [[nodiscard]] std::size_t header_bytes() const { return header().size(); }

private:
    struct Tensor {
        std::string name;
        std::uint32_t type;
        std::vector<std::int64_t> shape;
        std::string data;
    };

    [[nodiscard]] std::string header() const;

    std::vector<std::pair<std::string, GgufBytes>> entries_;
    std::vector<Tensor> tensors_;
};

/// A Llama of 2 layers in F32: d_model 8, d_ff 12, 2 query and 1 kv heads of 4, 10 tokens, context 32. Not tied.
[[nodiscard]] GgufWriter tiny_llama_gguf();

}  // namespace slipstream
