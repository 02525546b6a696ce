// Reads the protobuf wire format (protobuf.dev, "Encoding"): as much of it as SentencePiece files use, by hand. Walks
// the fields of one message in place; nothing is copied. Every length is checked against what is left; whatever does
// not fit is a FormatError that names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

class ProtobufReader {
public:
    struct Field {
        std::uint32_t number = 0;
        enum class Wire : std::uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 } wire = Wire::Varint;
        std::uint64_t value = 0;  // varint, fixed64, fixed32
        std::string_view bytes;   // strings, bytes, messages: a view into the message
    };

    /// `message` stays alive while views are used; `name` is the file's, for messages.
    ProtobufReader(std::string_view message, std::string_view name) : rest_(message), name_(name) {}

    /// The next field, or nothing at the end of the message.
    [[nodiscard]] std::optional<Field> next();

    // The field's value as the schema has it; FormatError where the wire type is another one.
    [[nodiscard]] std::int32_t as_int32(const Field& field) const;  // also enums; cut to 32 bits as protobuf does
    [[nodiscard]] bool as_bool(const Field& field) const;
    [[nodiscard]] float as_float(const Field& field) const;
    [[nodiscard]] std::string_view as_bytes(const Field& field) const;

private:
    [[nodiscard]] std::uint64_t varint();
    [[nodiscard]] std::uint64_t fixed(std::size_t n_bytes);
    void expect(const Field& field, Field::Wire wire, std::string_view what) const;

    std::string_view rest_;
    std::string_view name_;
};

}  // namespace slipstream
