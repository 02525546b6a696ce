#include "runtime/formats/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "runtime/formats/gguf_scalar.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

// Least bytes of a metadata entry: key length, type, the smallest value. A count of entries that the rest of the file
// cannot hold is refused.
constexpr std::size_t kMinEntryBytes = 8 + 4 + 1;
// Least bytes of an entry of the tensor directory: name length, rank, one dimension, type, offset.
constexpr std::size_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr std::size_t kMaxKeyBytes = 65535;  // limit for the name of a key or tensor, from the GGUF format
constexpr int kMaxArrayDepth = 4;            // levels; files have at most 2, and the format sets no limit
// Most entries for which memory is reserved at once: a count is not trusted until its entries have been read.
constexpr std::uint64_t kMaxReserved = 1 << 16;
constexpr std::size_t kDefaultAlignment = 32;
constexpr std::int64_t kMaxAlignment = 1 << 20;

}  // namespace

// Parses the header from front to back. Every read is checked against the remaining bytes.
class GgufParser {
public:
    GgufParser(std::span<const std::byte> bytes, std::string name) : rest_(bytes) {
        file_.bytes_ = bytes;
        file_.name_ = std::move(name);
    }

    GgufFile run() && {
        const auto [n_tensors, n_entries] = read_head();
        read_entries(n_entries);
        read_tensor_infos(n_tensors);
        place_tensors();
        return std::move(file_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw FormatError(fmt::format("{}: {}", file_.name_, what));
    }

    [[nodiscard]] std::size_t position() const { return file_.bytes_.size() - rest_.size(); }

    std::span<const std::byte> take(std::uint64_t n_bytes, std::string_view what) {
        if (n_bytes > rest_.size())
            fail(fmt::format("{} at byte {} needs {} bytes, {} are left; the file is truncated or damaged", what,
                             position(), n_bytes, rest_.size()));
        const auto part = rest_.first(n_bytes);
        rest_ = rest_.subspan(n_bytes);
        return part;
    }

    template <typename T>
    T read(std::string_view what) {
        return load_scalar<T>(take(sizeof(T), what));
    }

    std::string_view read_string(std::string_view what) {
        const auto length = read<std::uint64_t>(what);
        const auto text = take(length, what);
        return {reinterpret_cast<const char*>(text.data()), text.size()};
    }

    // Returns `count`, a number of elements of at least `min_bytes` each. Throws if the rest of the file cannot hold
    // them.
    std::uint64_t check_count(std::uint64_t count, std::size_t min_bytes, std::string_view what) const {
        if (count > rest_.size() / min_bytes)
            fail(fmt::format("claims {} {} at byte {}, the {} bytes left hold {} at most", count, what, position(),
                             rest_.size(), rest_.size() / min_bytes));
        return count;
    }

    std::pair<std::uint64_t, std::uint64_t> read_head() {
        const auto magic = take(4, "the magic number");
        const std::string_view text(reinterpret_cast<const char*>(magic.data()), magic.size());
        if (text != "GGUF") fail(fmt::format("not a GGUF file: it starts with \"{}\"", printable(text)));
        const auto version = read<std::uint32_t>("the version");
        // A small version number in the other byte order has 0 in its low half.
        if (version != 0 && (version & 0xFFFFU) == 0)
            throw Unsupported(fmt::format("{}: big-endian GGUF; convert it to little-endian", file_.name_));
        if (version != 2 && version != 3)
            throw Unsupported(fmt::format("{}: GGUF version {}; versions 2 and 3 are served", file_.name_, version));
        file_.version_ = version;
        const auto n_tensors = read<std::uint64_t>("the tensor count");
        const auto n_entries = read<std::uint64_t>("the metadata count");
        check_count(n_tensors, kMinTensorBytes, "tensors");
        check_count(n_entries, kMinEntryBytes, "metadata entries");
        return {n_tensors, n_entries};
    }

    GgufValueType read_type(std::string_view key) {
        const auto number = read<std::uint32_t>("a value type");
        if (number > static_cast<std::uint32_t>(GgufValueType::F64))
            fail(fmt::format("metadata {} has value type {}, which GGUF does not define", printable(key), number));
        return static_cast<GgufValueType>(number);
    }

    void check_booleans(std::span<const std::byte> raw, std::string_view key) const {
        if (std::any_of(raw.begin(), raw.end(), [](std::byte b) { return b > std::byte{1}; }))
            fail(fmt::format("metadata {} holds a boolean that is neither 0 nor 1", printable(key)));
    }

    GgufValue read_value(GgufValueType type, std::string_view key, int depth) {
        GgufValue value;
        value.type = type;
        if (type == GgufValueType::String) {
            value.raw = std::as_bytes(std::span(read_string(key)));
        } else if (type == GgufValueType::Array) {
            read_array(value, key, depth);
        } else {
            value.raw = take(scalar_bytes(type), printable(key));
            if (type == GgufValueType::Bool) check_booleans(value.raw, key);
        }
        return value;
    }

    void read_array(GgufValue& value, std::string_view key, int depth) {
        if (depth >= kMaxArrayDepth)
            fail(fmt::format("metadata {} nests arrays deeper than {}", printable(key), kMaxArrayDepth));
        value.element_type = read_type(key);
        value.count = read<std::uint64_t>("an array length");
        const bool compound = value.element_type == GgufValueType::String || value.element_type == GgufValueType::Array;
        const std::size_t min_bytes = value.element_type == GgufValueType::String  ? 8
                                      : value.element_type == GgufValueType::Array ? 12
                                                                                   : scalar_bytes(value.element_type);
        check_count(value.count, min_bytes, fmt::format("array elements in metadata {}", printable(key)));
        const auto begin = rest_;
        if (compound) {
            for (std::uint64_t i = 0; i < value.count; ++i) read_value(value.element_type, key, depth + 1);
        } else {
            take(value.count * min_bytes, printable(key));
        }
        value.raw = begin.first(begin.size() - rest_.size());
        if (value.element_type == GgufValueType::Bool) check_booleans(value.raw, key);
    }

    void read_entries(std::uint64_t n_entries) {
        file_.entries_.reserve(std::min(n_entries, kMaxReserved));
        for (std::uint64_t i = 0; i < n_entries; ++i) {
            const std::string_view key = read_string("a metadata key");
            if (key.empty() || key.size() > kMaxKeyBytes)
                fail(fmt::format("metadata entry {} has a key of {} bytes; 1 to {} are allowed", i, key.size(),
                                 kMaxKeyBytes));
            const GgufValueType type = read_type(key);
            file_.entries_.emplace_back(std::string(key), read_value(type, key, 0));
            if (!file_.index_.emplace(std::string(key), file_.entries_.size() - 1).second)
                fail(fmt::format("metadata key {} occurs twice", printable(key)));
        }
    }

    void read_tensor_infos(std::uint64_t n_tensors) {
        check_count(n_tensors, kMinTensorBytes, "tensors");
        file_.tensors_.reserve(std::min(n_tensors, kMaxReserved));
        std::unordered_set<std::string_view> seen;
        for (std::uint64_t i = 0; i < n_tensors; ++i) {
            const std::string_view name = read_string("a tensor name");
            if (name.empty() || name.size() > kMaxKeyBytes)
                fail(
                    fmt::format("tensor {} has a name of {} bytes; 1 to {} are allowed", i, name.size(), kMaxKeyBytes));
            if (!seen.insert(name).second) fail(fmt::format("tensor {} occurs twice", printable(name)));
            file_.tensors_.push_back(read_tensor_info(name));
        }
    }

    GgufTensor read_tensor_info(std::string_view name) {
        GgufTensor tensor;
        tensor.name = name;
        const auto rank = read<std::uint32_t>("a tensor's number of dimensions");
        if (rank < 1 || rank > kMaxRank)
            fail(fmt::format("tensor {} has {} dimensions; 1 to {} are allowed", printable(name), rank, kMaxRank));
        tensor.rank = static_cast<int>(rank);
        std::int64_t n_elements = 1;
        for (std::size_t i = 0; i < rank; ++i) {
            const auto length = read<std::uint64_t>("a tensor's shape");
            const bool fits = length >= 1 && length <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
            const auto product = fits ? checked_mul(n_elements, static_cast<std::int64_t>(length)) : std::nullopt;
            if (!product)
                fail(fmt::format("tensor {} has a dimension of {}, which no file can hold", printable(name), length));
            n_elements = *product;
            tensor.shape[rank - 1 - i] = static_cast<std::int64_t>(length);
        }
        const auto type = read<std::uint32_t>("a tensor's type");
        tensor.type = find_ggml_type(type);
        if (tensor.type == nullptr)
            throw Unsupported(
                fmt::format("{}: tensor {} has type number {}, which is not known (served: {}); use a file of "
                            "the same model of the kind {}",
                            file_.name_, printable(name), type, served_type_names(), served_file_kinds()));
        const std::int64_t fastest = tensor.shape[rank - 1];
        if (fastest % tensor.type->block_elements != 0)
            fail(fmt::format("tensor {} has rows of {} elements, no multiple of the {} in a block of {}",
                             printable(name), fastest, tensor.type->block_elements, tensor.type->name));
        const auto bytes =
            checked_mul(static_cast<std::size_t>(n_elements / tensor.type->block_elements), tensor.type->block_bytes);
        if (!bytes || *bytes > file_.bytes_.size())
            fail(fmt::format("tensor {} of {} elements of {} is larger than the file of {} bytes", printable(name),
                             n_elements, tensor.type->name, file_.bytes_.size()));
        tensor.bytes = *bytes;
        // This offset is relative to the data section; place_tensors() makes it absolute.
        const auto offset = read<std::uint64_t>("a tensor's offset");
        if (offset > file_.bytes_.size())
            fail(fmt::format("tensor {} begins at byte {} of the data, beyond the file's {} bytes", printable(name),
                             offset, file_.bytes_.size()));
        tensor.offset = static_cast<std::size_t>(offset);
        return tensor;
    }

    [[nodiscard]] std::size_t alignment() const {
        const auto value = file_.integer("general.alignment");
        if (!value) return kDefaultAlignment;
        if (*value < 1 || *value > kMaxAlignment || (*value & (*value - 1)) != 0)
            fail(fmt::format("general.alignment is {}; a power of two up to {} is needed", *value, kMaxAlignment));
        return *value;
    }

    void place_tensors() {
        const std::size_t step = alignment();
        const std::size_t data_begin = round_up(position(), step);
        const std::size_t size = file_.bytes_.size();
        for (GgufTensor& tensor : file_.tensors_) {
            if (tensor.offset % step != 0)
                fail(fmt::format("tensor {} begins at byte {} of the data, no multiple of the alignment {}",
                                 printable(tensor.name), tensor.offset, step));
            const std::size_t begin = data_begin + tensor.offset;  // neither is much larger than `size`: no overflow
            if (begin > size || tensor.bytes > size - begin)
                fail(fmt::format("tensor {} is at bytes {} to {}, the file has {}; it is truncated or damaged",
                                 printable(tensor.name), begin, begin + tensor.bytes, size));
            tensor.offset = begin;
        }
        std::vector<const GgufTensor*> order;
        order.reserve(file_.tensors_.size());
        for (const GgufTensor& tensor : file_.tensors_) order.push_back(&tensor);
        std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
        for (std::size_t i = 1; i < order.size(); ++i)
            if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
                fail(fmt::format("tensors {} and {} overlap at byte {}", printable(order[i - 1]->name),
                                 printable(order[i]->name), order[i]->offset));
    }

    std::span<const std::byte> rest_;
    GgufFile file_;
};

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
    return GgufParser(bytes, std::move(name)).run();
}

const GgufValue* GgufFile::find(std::string_view key) const {
    const auto found = index_.find(std::string(key));
    return found == index_.end() ? nullptr : &entries_[found->second].second;
}

namespace {

template <typename Get>
auto typed(const GgufFile& file, std::string_view key, std::string_view kind, Get get) -> decltype(get(GgufValue{})) {
    const GgufValue* value = file.find(key);
    if (value == nullptr) return std::nullopt;
    auto result = get(*value);
    if (!result)
        throw FormatError(fmt::format("{}: metadata {} is {}, not {}", file.name(), key, value->to_text(), kind));
    return result;
}

}  // namespace

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
    return typed(*this, key, "an integer", [](const GgufValue& value) { return value.integer(); });
}

std::optional<double> GgufFile::number(std::string_view key) const {
    return typed(*this, key, "a number", [](const GgufValue& value) { return value.number(); });
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
    return typed(*this, key, "a boolean", [](const GgufValue& value) { return value.boolean(); });
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
    return typed(*this, key, "a text", [](const GgufValue& value) { return value.string(); });
}

}  // namespace slipstream
