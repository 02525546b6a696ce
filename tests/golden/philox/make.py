#!/usr/bin/env python3
"""Golden noise of drafter-invariant sampling, from an implementation of its own: integers for Philox 4x32-10, mpmath with 40
digits for the logarithms. Writes noise.txt: seed, position, token, random word, gumbel (exact value, rounded to 12 digits).

    python3 make.py        needs: mpmath
"""
import random
from pathlib import Path

import mpmath

mpmath.mp.dps = 40
MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def main():
    random.seed(20)
    cases = [(0, 0, 0), (0, 0, 1), (0, 0, 4), (0, 1, 0), (1, 0, 0), (2**64 - 1, 2**40, 151935), (1 << 32, 1 << 32, 7)]
    cases += [(random.getrandbits(64), random.randrange(200000), random.randrange(160000)) for _ in range(200)]
    lines = []
    for seed, position, token in cases:
        block = philox((token // 4, position & MASK, position >> 32, 0), (seed & MASK, seed >> 32))
        word = block[token % 4]
        u = mpmath.mpf(2 * word + 1) / 2**33
        gumbel = -mpmath.log(-mpmath.log(u))
        lines.append(f"{seed} {position} {token} {word} {mpmath.nstr(gumbel, 12)}")
    Path(__file__).with_name("noise.txt").write_text("\n".join(lines) + "\n")


main()
