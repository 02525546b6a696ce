#include "runtime/formats/safetensors_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // bytes; limit of the safetensors format
constexpr std::size_t kMaxRankInFile = 16;

struct KnownType {
    std::string_view name;
    std::size_t bits;
    std::optional<DType> dtype;
};

// The data types of the safetensors crate 0.6 (Dtype in tensor.rs).
constexpr std::array kTypes{
    KnownType{"F32", 32, DType::F32},          KnownType{"F16", 16, DType::F16},
    KnownType{"BF16", 16, DType::BF16},        KnownType{"F64", 64, std::nullopt},
    KnownType{"I64", 64, std::nullopt},        KnownType{"U64", 64, std::nullopt},
    KnownType{"I32", 32, std::nullopt},        KnownType{"U32", 32, std::nullopt},
    KnownType{"I16", 16, std::nullopt},        KnownType{"U16", 16, std::nullopt},
    KnownType{"I8", 8, std::nullopt},          KnownType{"U8", 8, std::nullopt},
    KnownType{"BOOL", 8, std::nullopt},        KnownType{"F8_E4M3", 8, std::nullopt},
    KnownType{"F8_E5M2", 8, std::nullopt},     KnownType{"F8_E8M0", 8, std::nullopt},
    KnownType{"F6_E2M3", 6, std::nullopt},     KnownType{"F6_E3M2", 6, std::nullopt},
    KnownType{"F4", 4, std::nullopt},          KnownType{"C64", 64, std::nullopt},
    KnownType{"F8_E4M3FNUZ", 8, std::nullopt}, KnownType{"F8_E5M2FNUZ", 8, std::nullopt},
};

class HeaderReader {
public:
    HeaderReader(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

    SafetensorsFile run() {
        const std::string_view text = header_text();
        const nlohmann::json header = parse_json_object(text, name_);
        data_begin_ = kLengthBytes + text.size();
        for (const auto& [key, value] : header.items()) {
            if (key == "__metadata__") {
                read_metadata(value);
            } else {
                file_.tensors.push_back(read_tensor(key, value));
            }
        }
        check_places();
        return std::move(file_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const { throw FormatError(fmt::format("{}: {}", name_, what)); }

    [[nodiscard]] std::string_view header_text() const {
        if (bytes_.size() < kLengthBytes)
            fail(fmt::format("a safetensors file begins with 8 bytes of header length, this one has {} bytes",
                             bytes_.size()));
        std::uint64_t length = 0;
        std::memcpy(&length, bytes_.data(), kLengthBytes);
        if (length > kMaxHeaderBytes)
            fail(fmt::format("claims a header of {} bytes, the format allows {}; not a safetensors file?", length,
                             kMaxHeaderBytes));
        if (length > bytes_.size() - kLengthBytes)
            fail(fmt::format("claims a header of {} bytes, {} are left; the file is truncated or damaged", length,
                             bytes_.size() - kLengthBytes));
        const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, length);
        if (text.empty() || text.front() != '{') fail("the header does not begin with '{'; not a safetensors file?");
        return text;
    }

    void read_metadata(const nlohmann::json& value) {
        if (!value.is_object()) fail("__metadata__ is not an object");
        for (const auto& [key, text] : value.items()) {
            if (!text.is_string()) fail(fmt::format("__metadata__ {} is not a text", printable(key)));
            file_.metadata.emplace_back(key, text.get<std::string>());
        }
    }

    // Returns `value`, which must be a non-negative integer that fits int64. Throws FormatError otherwise; `tensor` and
    // `what` name it in the message.
    [[nodiscard]] std::int64_t read_size(const nlohmann::json& value, const std::string& tensor,
                                         const char* what) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
            fail(fmt::format("tensor {}: {} is not a size", printable(tensor), what));
        return static_cast<std::int64_t>(value.get<std::uint64_t>());
    }

    [[nodiscard]] const nlohmann::json& field(const nlohmann::json& entry, const std::string& tensor,
                                              const char* key) const {
        const auto found = entry.find(key);
        if (found == entry.end()) fail(fmt::format("tensor {} has no {}", printable(tensor), key));
        return *found;
    }

    SafetensorsTensor read_tensor(const std::string& tensor_name, const nlohmann::json& entry) const {
        if (!entry.is_object()) fail(fmt::format("tensor {} is described by no object", printable(tensor_name)));
        SafetensorsTensor tensor;
        tensor.name = tensor_name;
        const auto& type = field(entry, tensor_name, "dtype");
        const auto& shape = field(entry, tensor_name, "shape");
        const auto& offsets = field(entry, tensor_name, "data_offsets");
        if (!type.is_string()) fail(fmt::format("tensor {}: dtype is not a text", printable(tensor_name)));
        tensor.type_name = printable(type.get_ref<const std::string&>(), 32);
        if (!shape.is_array() || shape.size() > kMaxRankInFile)
            fail(fmt::format("tensor {}: shape is not a list of up to {} sizes", printable(tensor_name),
                             kMaxRankInFile));
        for (const auto& length : shape) tensor.shape.push_back(read_size(length, tensor_name, "a dimension"));
        if (!offsets.is_array() || offsets.size() != 2)
            fail(fmt::format("tensor {}: data_offsets is not a pair", printable(tensor_name)));
        const auto begin = static_cast<std::size_t>(read_size(offsets[0], tensor_name, "an offset"));
        const auto end = static_cast<std::size_t>(read_size(offsets[1], tensor_name, "an offset"));
        const std::size_t data_bytes = bytes_.size() - data_begin_;
        if (begin > end || end > data_bytes)
            fail(fmt::format(
                "tensor {} is at bytes {} to {} of the data, which has {}; the file is truncated or damaged",
                printable(tensor_name), begin, end, data_bytes));
        tensor.offset = data_begin_ + begin;
        tensor.bytes = end - begin;
        check_size(tensor);
        return tensor;
    }

    void check_size(SafetensorsTensor& tensor) const {
        const auto known = std::find_if(kTypes.begin(), kTypes.end(),
                                        [&](const KnownType& type) { return type.name == tensor.type_name; });
        if (known == kTypes.end()) return;  // newer than this table: an error only if the model needs it
        tensor.dtype = known->dtype;
        std::optional<std::size_t> bits = known->bits;
        for (const std::int64_t length : tensor.shape)
            if (bits) bits = checked_mul(*bits, static_cast<std::size_t>(length));
        if (!bits || *bits % 8 != 0 || *bits / 8 != tensor.bytes)
            fail(fmt::format("tensor {} of {} values of {} has {} bytes of data", printable(tensor.name),
                             fmt::join(tensor.shape, " x "), tensor.type_name, tensor.bytes));
    }

    // Throws FormatError unless the tensors cover the data, each following the one before, without holes up to the end
    // of the file. The safetensors crate checks the same (Metadata::validate and SafeTensors::read_metadata).
    void check_places() {
        auto& tensors = file_.tensors;
        std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
            return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
        });
        std::size_t end = data_begin_;
        std::string last = "the header";
        for (const SafetensorsTensor& tensor : tensors) {
            const std::string tensor_name = fmt::format("tensor {}", printable(tensor.name));
            if (tensor.offset < end)
                fail(fmt::format("{} and {} overlap at byte {}", last, tensor_name, tensor.offset));
            if (tensor.offset > end)
                fail(fmt::format("{} bytes between {} and {} belong to no tensor, which the format forbids",
                                 tensor.offset - end, last, tensor_name));
            end = tensor.offset + tensor.bytes;
            last = tensor_name;
        }
        if (end != bytes_.size())
            fail(fmt::format("{} bytes after {} belong to no tensor, which the format forbids; is the file damaged?",
                             bytes_.size() - end, last));
    }

    std::span<const std::byte> bytes_;
    const std::string& name_;
    std::size_t data_begin_ = 0;
    SafetensorsFile file_;
};

}  // namespace

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& name) {
    return HeaderReader(bytes, name).run();
}

}  // namespace slipstream
