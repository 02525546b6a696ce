#include "runtime/session/session_begin.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "kernels/base/error.h"
#include "runtime/cache/device_kv.h"

namespace slipstream {

namespace {

// Limits the context of a session, in tokens, as ModelConfig's validate() does: a larger number is damage.
constexpr std::int64_t kMaxContextTokens = std::int64_t{1} << 28;
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 31;
constexpr std::int64_t kMaxLayers = std::int64_t{1} << 20;
// Limits a KV block, in bytes: far more than a KV chunk of any layer, so a larger number is damage.
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 40;

// The fields of a SessionBegin in the order of the file; `Fields` writes or reads them. In version 1 the split is a
// part of `form`, and all layers have the size `block_bytes`.
template <typename Fields, typename Begin, typename Form, typename Layers>
void for_each_field(Fields& fields, Begin& begin, Form& form, Layers& n_layers, Layers& block_bytes) {
    fields.text(begin.program_version);
    fields.text(begin.model_path);
    fields.number(begin.model_fingerprint);
    fields.text(begin.device_kind);
    fields.text(form);
    if (begin.version > 1) fields.split(begin.split);
    fields.number(begin.context_tokens);
    fields.number(begin.rope_fingerprint);
    fields.enumeration(begin.kv_dtype);
    if (begin.version > 1) {
        fields.numbers(begin.kv_bytes);
    } else {
        fields.number(n_layers);
        fields.number(block_bytes);
    }
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
    void ids(const std::vector<TokenId>& values) { numbers_of(values); }
    void numbers(const std::vector<std::uint64_t>& values) { numbers_of(values); }
    void split(const std::optional<SessionSplit>& split) {
        number(split ? 1 + static_cast<std::uint64_t>(split->kind) : 0);
        if (split) numbers_of(split->parts);
    }
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

private:
    template <typename T>
    void numbers_of(const std::vector<T>& values) {
        number(std::uint64_t{values.size()});
        append(values.data(), values.size() * sizeof(T));
    }
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
    void ids(std::vector<TokenId>& values) { numbers_of(values); }
    void numbers(std::vector<std::uint64_t>& values) { numbers_of(values); }
    void split(std::optional<SessionSplit>& split) {
        std::uint64_t kind = 0;
        number(kind);
        if (kind > 1 + static_cast<std::uint64_t>(SplitKind::Tensor)) fail("a value that no option has");
        if (kind == 0) return;
        split.emplace().kind = static_cast<SplitKind>(kind - 1);
        numbers_of(split->parts);
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
    template <typename T>
    void numbers_of(std::vector<T>& values) {
        values.resize(count(sizeof(T)));
        const auto bytes = take(values.size() * sizeof(T));
        if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    std::span<const std::byte> take(std::size_t n_bytes) {
        if (n_bytes > bytes_.size()) fail("a field that ends early");
        const auto taken = bytes_.first(n_bytes);
        bytes_ = bytes_.subspan(n_bytes);
        return taken;
    }
    std::span<const std::byte> bytes_;
    std::string_view name_;
};

// Text before the split in version 1, which appends it to the kernel variants: "avx512 (tensor 2,1)", "sm_89,avx512
// (19,9 layers)".
constexpr std::string_view kSplitBegin = " (";
constexpr std::string_view kTensorFront = "tensor ";
constexpr std::string_view kLayersEnd = " layers";

std::string form_with_split(const SessionBegin& begin) {
    if (!begin.split) return begin.instruction_form;
    const bool is_tensor = begin.split->kind == SplitKind::Tensor;
    return fmt::format("{}{}{}{}{})", begin.instruction_form, kSplitBegin, is_tensor ? kTensorFront : "",
                       fmt::join(begin.split->parts, ","), is_tensor ? "" : kLayersEnd);
}

// Takes the split off the end of begin.instruction_form. Returns false if there is text that is no split.
bool take_split_of_form(SessionBegin& begin) {
    const std::string form = begin.instruction_form;
    const std::size_t at = form.find(kSplitBegin);
    if (at == std::string::npos) return true;
    std::string_view text = std::string_view(form).substr(at + kSplitBegin.size());
    if (!text.ends_with(')')) return false;
    text.remove_suffix(1);
    SessionSplit split;
    if (text.starts_with(kTensorFront)) {
        split.kind = SplitKind::Tensor;
        text.remove_prefix(kTensorFront.size());
    } else if (text.ends_with(kLayersEnd)) {
        text.remove_suffix(kLayersEnd.size());
    } else {
        return false;
    }
    for (;;) {
        const std::string_view part = text.substr(0, text.find(','));
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
        if (error != std::errc() || end != part.data() + part.size()) return false;
        split.parts.push_back(n);
        if (part.size() == text.size()) break;
        text.remove_prefix(part.size() + 1);
    }
    begin.instruction_form.resize(at);
    begin.split = std::move(split);
    return true;
}

// Returns whether the split, or that there is none, is possible with these devices and layers.
bool is_split_possible(const SessionBegin& begin) {
    const auto n_kinds = static_cast<std::size_t>(1 + std::ranges::count(begin.device_kind, ','));
    if (!begin.split) return n_kinds == 1;
    const std::vector<std::int64_t>& parts = begin.split->parts;
    if (parts.empty() || std::ranges::any_of(parts, [](std::int64_t n) { return n < 1 || n > kMaxLayers; }))
        return false;
    return begin.split->kind == SplitKind::Tensor ||
           (parts.size() == n_kinds &&
            std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) == begin.n_layers());
}

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
    const std::string form = begin.version > 1 ? begin.instruction_form : form_with_split(begin);
    const auto n_layers = static_cast<std::uint64_t>(begin.n_layers());
    const std::uint64_t block_bytes = begin.kv_bytes.empty() ? 0 : begin.kv_bytes.front();
    for_each_field(fields, begin, form, n_layers, block_bytes);
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

std::vector<std::uint64_t> session_kv_bytes(std::span<const KvLayout> layouts, std::uint32_t version) {
    std::vector<std::uint64_t> sizes;
    sizes.reserve(layouts.size());
    for (const KvLayout& layout : layouts)
        sizes.push_back(version > 1 ? layout.chunk_bytes() : largest_chunk_bytes(layouts));
    return sizes;
}

SessionBegin decode_session_begin(std::span<const std::byte> bytes, std::uint32_t version, std::string_view name) {
    FieldReader fields(bytes, name);
    SessionBegin begin;
    begin.version = version;
    std::uint64_t n_layers = 0;
    std::uint64_t block_bytes = 0;
    for_each_field(fields, begin, begin.instruction_form, n_layers, block_bytes);
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
    if (version == 1) {
        if (n_layers > static_cast<std::uint64_t>(kMaxLayers)) fields.fail("a number that no model has");
        begin.kv_bytes.assign(n_layers, block_bytes);
        if (!take_split_of_form(begin)) fields.fail("the split among its devices");
    }
    if (begin.context_tokens < 1 || begin.context_tokens > kMaxContextTokens || begin.vocab < 1 ||
        begin.vocab > kMaxVocab || begin.n_layers() < 1 || begin.n_layers() > kMaxLayers || begin.max_tokens < -1 ||
        std::ranges::any_of(begin.kv_bytes, [](std::uint64_t n) { return n > kMaxBlockBytes; }) ||
        std::ranges::all_of(begin.kv_bytes, [](std::uint64_t n) { return n == 0; }))  // recurrent layers have no KV
        fields.fail("a number that no model has");
    if (!is_split_possible(begin)) fields.fail("the split among its devices");
    if (!is_kv_type(begin.kv_dtype) || begin.text_start > StreamingDetokenizer::Start::Continued ||
        begin.echo > PromptEcho::Yes)
        fields.fail("a value that no option has");
    if (begin.prompt.empty() || std::ssize(begin.prompt) >= begin.context_tokens)
        fields.fail("a prompt that does not fit its context");
    if (!are_tokens(begin.prompt, begin.vocab)) fields.fail("a token outside of the vocabulary");
    return begin;
}

}  // namespace slipstream
