// Random texts that another program can reproduce, so that the results of both can be compared by a hash. The
// counterpart is tests/golden/tokenizer/random_texts.py.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

/// Random numbers of splitmix64 (Steele, Lea, Flood 2014).
class TextRandom {
public:
    explicit TextRandom(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        std::uint64_t z = state_;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
        z = (z ^ z >> 27) * 0x94d049bb133111ebU;
        return z ^ z >> 31;
    }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>((next() >> 11) % n); }

private:
    std::uint64_t state_;
};

inline std::u32string random_text(TextRandom& random) {
    static const std::u32string bytes = [] {
        std::u32string all;
        for (char32_t point = 1; point < 256; ++point) all += point;
        return all;
    }();
    static const std::array<std::u32string, 16> pools = {
        U"abcdefghijklmnopqrstuvwxyz     \n.,'\"",
        U"ABCDEFGHIJKLM'S'T'REs the and ",
        U"0123456789 .,-",
        U"<|>/\\{}[]()_=+*&^%$#@!`~?;:",
        U" \t\r\n\u00a0\u1680\u2003\u2028\u3000\u200b\u180e\u0085",
        U"\u00e9\u00e8\u00f1\u00fc\u00df\u00c0\u00e7\u00f8\u0131 \u017fK",
        U"\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0416\u0429",
        U"\u4f60\u597d\u4e16\u754c\u7684\u662f\uff0c\u3002",
        U"\u3053\u3093\u306b\u3061\u306f\u30ab\u30bf\u30ab\u30ca\u3099",
        U"\ud55c\uad6d\uc5b4\uc870\uc120\u1100\u1161\u11a8\uac00",
        U"\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u06f1\u06f2\u06f3 ",
        U"\u0939\u093f\u0928\u094d\u0926\u0940 \u0926\u0947\u0935",
        U"\U0001f999\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd ",
        U"\u0301\u0308\u0323\u0327eao",
        U"\u2581\u2581 a\u2581b",
        bytes};
    constexpr std::array<char32_t, 12> blocks = {0x900,  0x300,  0x1e00,  0x2000,  0x3000,  0x4e00,
                                                 0xa000, 0xac00, 0x10000, 0x1f300, 0x1d400, 0xfb00};
    const std::size_t kind = random.below(10);
    const std::size_t length = random.below(33);
    std::u32string points;
    if (kind < 5) {
        const std::size_t first = random.below(pools.size());
        const std::array<const std::u32string*, 2> two = {&pools[first], &pools[random.below(pools.size())]};
        for (std::size_t i = 0; i < length; ++i) {
            const std::u32string& pool = *two[random.below(2)];
            points += pool[random.below(pool.size())];
        }
    } else if (kind < 7) {
        for (std::size_t i = 0; i < length; ++i) {
            const std::u32string& pool = pools[random.below(pools.size())];
            points += pool[random.below(pool.size())];
        }
    } else if (kind < 9) {
        for (std::size_t i = 0; i < length / 2; ++i) points += static_cast<char32_t>(random.below(0x110000));
    } else {
        const char32_t base = blocks[random.below(blocks.size())];
        for (std::size_t i = 0; i < length; ++i) points += base + static_cast<char32_t>(random.below(0x180));
    }
    std::erase_if(points, [](char32_t point) { return point == 0 || (point >= 0xd800 && point < 0xe000); });
    return points;
}

inline std::vector<std::u32string> random_texts(std::size_t count, std::uint64_t seed = 20) {
    TextRandom random(seed);
    std::vector<std::u32string> texts;
    texts.reserve(count);
    while (texts.size() < count) texts.push_back(random_text(random));
    return texts;
}

/// Inserts up to three of `contents`, with blanks around them, into every fifth text.
inline void put_spellings(std::vector<std::u32string>& texts, const std::vector<std::u32string>& contents) {
    TextRandom random(3);
    if (contents.empty()) return;
    for (std::size_t i = 0; i < texts.size(); i += 5) {
        const std::size_t n = 1 + random.below(3);
        for (std::size_t k = 0; k < n; ++k) {
            const std::size_t at = random.below(texts[i].size() + 1);
            const std::u32string space(random.below(3), U' ');
            std::u32string put = space;
            put.append(contents[random.below(contents.size())]).append(space);
            texts[i].insert(at, put);
        }
    }
}

/// Hashes token ids: 64-bit FNV-1a over ids as four bytes each, low byte first; each text ends with ff ff ff ff.
class IdHash {
public:
    void add(std::span<const std::int32_t> ids) {
        for (const std::int32_t id : ids) add_number(static_cast<std::uint32_t>(id));
        add_number(UINT32_MAX);
    }
    [[nodiscard]] std::uint64_t value() const { return value_; }

private:
    void add_number(std::uint32_t number) {
        for (int shift = 0; shift < 32; shift += 8) value_ = (value_ ^ (number >> shift & 0xffU)) * 0x100000001b3U;
    }
    std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace slipstream
