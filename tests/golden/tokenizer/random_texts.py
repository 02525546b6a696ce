"""Random texts that a test can make again: splitmix64 and nothing of Python's own (see random_texts.h under tests/support)."""

MASK = (1 << 64) - 1

# Alphabets to mix: what patterns, normalisers and merges tell apart.
POOLS = [
    "abcdefghijklmnopqrstuvwxyz     \n.,'\"",
    "ABCDEFGHIJKLM'S'T'REs the and ",
    "0123456789 .,-",
    "<|>/\\{}[]()_=+*&^%$#@!`~?;:",
    " \t\r\n\u00a0\u1680\u2003\u2028\u3000\u200b\u180e\u0085",
    "\u00e9\u00e8\u00f1\u00fc\u00df\u00c0\u00e7\u00f8\u0131 \u017fK",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0416\u0429",
    "\u4f60\u597d\u4e16\u754c\u7684\u662f\uff0c\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u30ab\u30bf\u30ab\u30ca\u3099",
    "\ud55c\uad6d\uc5b4\uc870\uc120\u1100\u1161\u11a8\uac00",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u06f1\u06f2\u06f3 ",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0926\u0947\u0935",
    "\U0001f999\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\U0001f3fd ",
    "\u0301\u0308\u0323\u0327eao",
    "\u2581\u2581 a\u2581b",
    "".join(map(chr, range(1, 256))),
]
BLOCKS = [0x900, 0x300, 0x1E00, 0x2000, 0x3000, 0x4E00, 0xA000, 0xAC00, 0x10000, 0x1F300, 0x1D400, 0xFB00]


class Random:
    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31

    def below(self, n):
        return (self.next() >> 11) % n


def is_character(point):
    return point > 0 and not 0xD800 <= point < 0xE000


def random_text(random):
    kind = random.below(10)
    length = random.below(33)
    points = []
    if kind < 5:  # two pools mixed
        pools = [POOLS[random.below(len(POOLS))], POOLS[random.below(len(POOLS))]]
        for _ in range(length):
            pool = pools[random.below(2)]
            points.append(ord(pool[random.below(len(pool))]))
    elif kind < 7:  # all of them
        for _ in range(length):
            pool = POOLS[random.below(len(POOLS))]
            points.append(ord(pool[random.below(len(pool))]))
    elif kind < 9:  # anywhere in Unicode
        points = [random.below(0x110000) for _ in range(length // 2)]
    else:  # one block
        base = BLOCKS[random.below(len(BLOCKS))]
        points = [base + random.below(0x180) for _ in range(length)]
    return "".join(chr(point) for point in points if is_character(point))


def random_texts(count, seed=20):
    random = Random(seed)
    return [random_text(random) for _ in range(count)]


def hash_of(id_lists):
    """FNV-1a, 64 bits, over the ids as four bytes each, low first; a text ends with ff ff ff ff."""
    value = 0xCBF29CE484222325
    for ids in id_lists:
        for number in list(ids) + [0xFFFFFFFF]:
            for byte in number.to_bytes(4, "little"):
                value = ((value ^ byte) * 0x100000001B3) & MASK
    return value
