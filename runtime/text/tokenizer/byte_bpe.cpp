#include "runtime/text/tokenizer/byte_bpe.h"

#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

ByteBpe::ByteBpe(const TokenVocabulary& vocabulary, MergeTable merges, WholeWords whole_words,
                 std::optional<TokenId> unk, std::string_view name)
    : vocabulary_(vocabulary), merger_(std::move(merges)) {
    byte_ids_.fill(-1);
    const auto bytes_of = [&vocabulary](TokenId id) { return vocabulary.bytes(id); };
    if (whole_words == WholeWords::TakeFromVocabulary)
        words_ = StringIndex(static_cast<std::size_t>(vocabulary.size()));
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        const std::string_view bytes = vocabulary.bytes(id);
        if (vocabulary.kind(id) != TokenKind::Normal || bytes.empty()) continue;
        if (bytes.size() == 1) {
            TokenId& byte_id = byte_ids_[static_cast<unsigned char>(bytes.front())];
            if (byte_id < 0) byte_id = id;
        }
        if (whole_words == WholeWords::TakeFromVocabulary) words_.insert(bytes, id, bytes_of);
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
        if (byte_ids_[byte] >= 0) continue;
        if (!unk)
            throw FormatError(
                fmt::format("{}: no token for the byte 0x{:02X}, and none for what is unknown; some texts have "
                            "no ids",
                            name, byte));
        byte_ids_[byte] = *unk;
    }
}

void ByteBpe::encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const {
    const TokenId whole = words_.find(word, [this](TokenId id) { return vocabulary_.bytes(id); });
    if (whole >= 0) {
        out.push_back(whole);
        return;
    }
    scratch.symbols.clear();
    for (const char c : word) scratch.symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    merger_.merge(scratch.symbols, scratch.merger, out);
}

}  // namespace slipstream
