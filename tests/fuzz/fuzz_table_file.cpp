// Fuzz target: any bytes as a table file, and as the payload of sections whose checksums are right: fields one by one,
// a learnt Cacheback table, a frozen one. Errors of ours are the expected outcome; what is accepted must then be usable
// without reading out of range. The seeds in corpus/table_file are files and payloads of write_table_file() and
// Cacheback::save().
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "draft/sources/cacheback.h"
#include "draft/tables/frozen_table.h"
#include "draft/tables/table_file.h"
#include "kernels/base/error.h"

namespace {

using namespace slipstream;
using namespace slipstream::draft;

constexpr std::int64_t kVocab = 4096;
constexpr FrozenTableKey kKey{.vocab = kVocab, .tokenizer_fingerprint = 1};

template <typename Call>
void expect_own_errors(const Call& call) {
    try {
        call();
    } catch (const Error&) {
        return;
    }
}

std::uint64_t sum_of(auto values) {
    std::uint64_t sum = 0;
    for (const auto value : values) sum += static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    return sum;
}

// Which field comes next is the input's to say.
void read_fields(TableReader fields) {
    for (;;) {
        switch (fields.u32() % 6) {
            case 0:
                static_cast<void>(fields.u64());
                break;
            case 1:
                static_cast<void>(fields.f32());
                break;
            case 2:
                static_cast<void>(sum_of(fields.text()));
                break;
            case 3:
                static_cast<void>(sum_of(fields.u32s()));
                break;
            case 4:
                static_cast<void>(sum_of(fields.i32s()));
                break;
            default:
                fields.finish();
                return;
        }
    }
}

void use(Cacheback& source) {
    const std::vector<TokenId> text{5, 9, 4095, 0, 261};
    const PathNoise noise(3);
    TokenTree tree;
    tree.reset(text.back());
    source.propose_shape(tree, {.text = text, .budget = 64, .max_depth = 20, .noise = &noise});
    std::array<Proposal, 8> out;
    Cursor cursor = source.root(text);
    for (int depth = 0; depth < 4; ++depth) {
        const std::size_t n = source.propose(cursor, 5 + depth, noise, out);
        cursor = source.advance(cursor, n > 0 ? out[0].token : 261);
    }
    source.observe({.text = text, .n_new = 5});
}

void read_sections(const TableFile& file) {
    for (const auto& name : file.section_names()) {
        expect_own_errors([&] { read_fields(file.section(name).value()); });
        expect_own_errors([&] {
            Cacheback source({}, kVocab);
            TableReader fields = file.section(name).value();
            source.load(fields);
            use(source);
        });
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    expect_own_errors([&] { read_sections(TableFile::parse(bytes, "fuzz")); });

    std::vector<TableSection> sections(1);
    sections[0].name = kFrozenTableSection;
    for (std::size_t at = 0; at + sizeof(std::uint32_t) <= size; at += sizeof(std::uint32_t)) {
        std::uint32_t word = 0;
        std::memcpy(&word, data + at, sizeof(word));
        sections[0].fields.u32(word);
    }
    std::vector<std::byte> whole;
    write_table_bytes(sections,
                      [&](std::span<const std::byte> more) { whole.insert(whole.end(), more.begin(), more.end()); });
    expect_own_errors([&] { read_sections(TableFile::parse(whole, "fuzz")); });
    expect_own_errors([&] {
        Cacheback source({}, kVocab, FrozenTable(TableFile::parse(whole, "fuzz"), kKey));
        use(source);
    });
    return 0;
}
