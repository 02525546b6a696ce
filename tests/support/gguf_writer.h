// Writes GGUF files for tests: valid ones and, from raw parts, broken ones. Setting a key again replaces its value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// The bytes that follow a key: a type number and the content of the value.
struct GgufBytes {
    std::uint32_t type = 0;
    std::string content;
};

/// Returns the bytes of a scalar value; T determines its GGUF type (bool, the eight integers, float, double).
template <typename T>
[[nodiscard]] GgufBytes gguf_scalar(T value);
[[nodiscard]] GgufBytes gguf_string(std::string_view text);
/// Returns an array of values, all of the type of the first one (`empty_type` if there is none). Arrays may be nested.
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

    /// Adds a tensor, or replaces the one with that name. `shape` is row-major; `type` is ggml's type number.
    GgufWriter& tensor(const std::string& name, std::uint32_t type, std::vector<std::int64_t> shape, std::string data);
    /// Adds an F32 tensor with the values first + 0.5, first + 1.5, first + 2.5, ...
    GgufWriter& floats(const std::string& name, std::vector<std::int64_t> shape, float first = 0.0F);
    GgufWriter& erase_tensor(const std::string& name);

    std::uint32_t version = 3;
    std::size_t alignment = 32;  // of tensor data, in bytes; the key general.alignment is not written
    /// Forged fields of the header: offsets of tensors by name, and the counts of tensors and entries (0: the true
    /// ones).
    std::map<std::string, std::uint64_t> forged_offsets;
    std::uint64_t forged_tensor_count = 0;
    std::uint64_t forged_entry_count = 0;

    [[nodiscard]] std::string bytes() const;
    /// Returns the size of the header in bytes, without padding and data.
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

/// Returns a Llama model with 2 layers in F32: d_model 8, d_ff 12, 2 query heads and 1 kv head of 4, vocab 10, context
/// 32, embeddings not tied.
[[nodiscard]] GgufWriter tiny_llama_gguf();

}  // namespace slipstream
