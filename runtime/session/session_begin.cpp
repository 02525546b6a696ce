#include "runtime/session/session_begin.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

constexpr std::int64_t kMaxContextTokens = std::int64_t{1} << 28;  // as in ModelConfig's validate()
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 31;
constexpr std::int64_t kMaxLayers = std::int64_t{1} << 20;

// The fields of a SessionBegin in the order of the file; `Fields` writes or reads them.
template <typename Fields, typename Begin>
void for_each_field(Fields& fields, Begin& begin) {
    fields.text(begin.program_version);
    fields.text(begin.model_path);
    fields.number(begin.model_fingerprint);
    fields.text(begin.device_kind);
    fields.text(begin.instruction_form);
    fields.number(begin.context_tokens);
    fields.number(begin.rope_fingerprint);
    fields.enumeration(begin.kv_dtype);
    fields.number(begin.n_layers);
    fields.number(begin.kv_chunk_bytes);
    fields.number(begin.vocab);
    fields.number(begin.sampling.temperature);
    fields.number(begin.sampling.top_k);
    fields.number(begin.sampling.top_p);
    fields.number(begin.sampling.min_p);
    fields.number(begin.sampling.repeat_penalty);
    fields.number(begin.sampling.repeat_window);
    fields.number(begin.sampling.seed);
    fields.texts(begin.stops);
    fields.ids(begin.end_tokens);
    fields.number(begin.max_tokens);
    fields.enumeration(begin.text_start);
    fields.enumeration(begin.echo);
    fields.text(begin.prompt_text);
    fields.texts(begin.prompt_options);
    fields.ids(begin.prompt);
}

class FieldWriter {
public:
    template <typename T>
    void number(const T& value) {
        static_assert(sizeof(T) == 8 && std::is_arithmetic_v<T>);
        append(&value, sizeof(value));
    }
    template <typename T>
    void enumeration(const T& value) {
        number(static_cast<std::uint64_t>(value));
    }
    void text(const std::string& value) {
        number(std::uint64_t{value.size()});
        append(value.data(), value.size());
    }
    void texts(const std::vector<std::string>& values) {
        number(std::uint64_t{values.size()});
        for (const std::string& value : values) text(value);
    }
    void ids(const std::vector<TokenId>& values) {
        number(std::uint64_t{values.size()});
        append(values.data(), values.size() * sizeof(TokenId));
    }
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

private:
    void append(const void* data, std::size_t n_bytes) {
        const auto* begin = static_cast<const std::byte*>(data);
        bytes_.insert(bytes_.end(), begin, begin + n_bytes);
    }
    std::vector<std::byte> bytes_;
};

class FieldReader {
public:
    FieldReader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

    template <typename T>
    void number(T& value) {
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    }
    template <typename T>
    void enumeration(T& value) {
        std::uint64_t number_of = 0;
        number(number_of);
        if (number_of > 0xFF) fail("a value that no option has");
        value = static_cast<T>(number_of);
    }
    void text(std::string& value) {
        const auto bytes = take(count(1));
        value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    void texts(std::vector<std::string>& values) {
        values.resize(count(sizeof(std::uint64_t)));
        for (std::string& value : values) text(value);
    }
    void ids(std::vector<TokenId>& values) {
        values.resize(count(sizeof(TokenId)));
        const auto bytes = take(values.size() * sizeof(TokenId));
        if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    // Reads a count of values that take at least `n_bytes` bytes each.
    std::size_t count(std::size_t n_bytes) {
        std::uint64_t n = 0;
        number(n);
        if (n > bytes_.size() / n_bytes) fail("a count beyond its end");
        return n;
    }
    [[nodiscard]] bool at_end() const { return bytes_.empty(); }
    void finish() const {
        if (!bytes_.empty()) fail("more than its fields");
    }
    [[noreturn]] void fail(std::string_view what) const {
        throw FormatError(fmt::format("{}: a damaged session ({}); it is left as it is, begin another", name_, what));
    }

private:
    std::span<const std::byte> take(std::size_t n_bytes) {
        if (n_bytes > bytes_.size()) fail("a field that ends early");
        const auto taken = bytes_.first(n_bytes);
        bytes_ = bytes_.subspan(n_bytes);
        return taken;
    }
    std::span<const std::byte> bytes_;
    std::string_view name_;
};

bool are_tokens(const std::vector<TokenId>& tokens, std::int64_t vocab) {
    for (const TokenId token : tokens)
        if (token < 0 || token >= vocab) return false;
    return true;
}

}  // namespace

std::uint64_t rope_fingerprint(std::span<const RopeFrequencies> ropes) {
    std::uint64_t digest = 0;
    for (const RopeFrequencies& rope : ropes) {
        digest = XXH3_64bits_withSeed(&rope.magnitude, sizeof(rope.magnitude), digest);
        digest =
            XXH3_64bits_withSeed(rope.inverse_frequency.data(), rope.inverse_frequency.size() * sizeof(double), digest);
    }
    return digest;
}

std::vector<std::byte> encode_session_begin(const SessionBegin& begin) {
    FieldWriter fields;
    for_each_field(fields, begin);
    if (begin.sampling.adds() || begin.ignore_end) {
        fields.number(begin.sampling.presence_penalty);
        fields.number(begin.sampling.frequency_penalty);
        fields.number(std::uint64_t{begin.sampling.bias.size()});
        for (const TokenBias& bias : begin.sampling.bias) {
            fields.number(static_cast<std::int64_t>(bias.id));
            fields.number(static_cast<double>(bias.bias));
        }
    }
    if (begin.ignore_end) fields.number(std::uint64_t{1});
    return fields.take();
}

SessionBegin decode_session_begin(std::span<const std::byte> bytes, std::string_view name) {
    FieldReader fields(bytes, name);
    SessionBegin begin;
    for_each_field(fields, begin);
    // Options that add to logits come after all other fields, and only if they are used, so that the bytes of sessions
    // without them stay the same.
    if (!fields.at_end()) {
        fields.number(begin.sampling.presence_penalty);
        fields.number(begin.sampling.frequency_penalty);
        begin.sampling.bias.resize(fields.count(2 * sizeof(std::uint64_t)));
        for (TokenBias& bias : begin.sampling.bias) {
            std::int64_t id = 0;
            double value = 0.0;
            fields.number(id);
            fields.number(value);
            if (id < 0 || id >= begin.vocab || !(value <= std::numeric_limits<float>::max()))
                fields.fail("a bias of no token");
            bias = {static_cast<TokenId>(id), static_cast<float>(value)};
        }
    }
    if (!fields.at_end()) {
        std::uint64_t ignore_end = 0;
        fields.number(ignore_end);
        if (ignore_end != 1) fields.fail("a value that no option has");
        begin.ignore_end = true;
    }
    fields.finish();
    if (begin.context_tokens < 1 || begin.context_tokens > kMaxContextTokens || begin.vocab < 1 ||
        begin.vocab > kMaxVocab || begin.n_layers < 1 || begin.n_layers > kMaxLayers || begin.kv_chunk_bytes == 0 ||
        begin.max_tokens < -1)
        fields.fail("a number that no model has");
    if (!is_kv_type(begin.kv_dtype) || begin.text_start > StreamingDetokenizer::Start::Continued ||
        begin.echo > PromptEcho::Yes)
        fields.fail("a value that no option has");
    if (begin.prompt.empty() || std::ssize(begin.prompt) >= begin.context_tokens)
        fields.fail("a prompt that does not fit its context");
    if (!are_tokens(begin.prompt, begin.vocab)) fields.fail("a token outside of the vocabulary");
    return begin;
}

}  // namespace slipstream
