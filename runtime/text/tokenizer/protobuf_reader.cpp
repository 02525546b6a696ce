#include "runtime/text/tokenizer/protobuf_reader.h"

#include <bit>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

std::uint64_t ProtobufReader::varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (rest_.empty())
            throw FormatError(fmt::format("{}: ends in the middle of a number; is it cut short?", name_));
        const auto byte = static_cast<unsigned char>(rest_.front());
        rest_.remove_prefix(1);
        value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
        if (byte < 0x80) return value;
    }
    throw FormatError(fmt::format("{}: a number of more than ten bytes; this is no protobuf file", name_));
}

std::uint64_t ProtobufReader::fixed(std::size_t n_bytes) {
    if (rest_.size() < n_bytes)
        throw FormatError(fmt::format("{}: ends in the middle of a number; is it cut short?", name_));
    std::uint64_t value = 0;
    for (std::size_t i = n_bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(n_bytes);
    return value;
}

std::optional<ProtobufReader::Field> ProtobufReader::next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t tag = varint();
    const std::uint64_t number = tag >> 3;
    if (number == 0 || number >= 1U << 29)
        throw FormatError(fmt::format("{}: field number {} is out of range; this is no protobuf file", name_, number));
    Field field;
    field.number = static_cast<std::uint32_t>(number);
    switch (tag & 7U) {
        case 0:
            field.value = varint();
            break;
        case 1:
            field.value = fixed(8);
            break;
        case 2: {
            const std::uint64_t length = varint();
            if (length > rest_.size())
                throw FormatError(fmt::format("{}: field {} wants {} bytes where {} are left; is the file cut short?",
                                              name_, number, length, rest_.size()));
            field.bytes = rest_.substr(0, length);
            rest_.remove_prefix(length);
            break;
        }
        case 5:
            field.value = fixed(4);
            break;
        default:
            throw FormatError(
                fmt::format("{}: field {} has wire type {}; this is no protobuf file", name_, number, tag & 7U));
    }
    field.wire = static_cast<Field::Wire>(tag & 7U);
    return field;
}

void ProtobufReader::expect(const Field& field, Field::Wire wire, std::string_view what) const {
    if (field.wire != wire)
        throw FormatError(fmt::format("{}: field {} should be {} and has wire type {}; this is no SentencePiece model",
                                      name_, field.number, what, static_cast<int>(field.wire)));
}

std::int32_t ProtobufReader::as_int32(const Field& field) const {
    expect(field, Field::Wire::Varint, "an integer");
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(field.value));
}

bool ProtobufReader::as_bool(const Field& field) const {
    expect(field, Field::Wire::Varint, "true or false");
    return field.value != 0;
}

float ProtobufReader::as_float(const Field& field) const {
    expect(field, Field::Wire::Fixed32, "a float");
    return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
}

std::string_view ProtobufReader::as_bytes(const Field& field) const {
    expect(field, Field::Wire::Bytes, "a string or message");
    return field.bytes;
}

}  // namespace slipstream
