#!/usr/bin/env python3
"""Writes <type>.txt beside this script: blocks of every weight format and what the gguf Python package makes of them.

    block <hex bytes>            a block with extreme or random fields
    float <hex bits> ...         its weights, as the bits of float32
    many <seed> <n_blocks> <sum> n_blocks random blocks, and a sum over the bits of all their weights (see checksum)

Needs: pip install gguf numpy. Origin of the committed files: gguf 0.19.0. Run: python3 make.py
"""
import pathlib

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# type: byte offsets of its binary16 fields. Plain types are written in runs of 32 elements.
HALVES = {
    "F32": [], "F16": list(range(0, 64, 2)), "BF16": [], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0],
    "Q5_1": [0, 2], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "MXFP4": [],
    "IQ4_XS": [0], "Q2_K": [80, 82],
}
# 0, -0, smallest and largest subnormal, smallest normal, 1/3, largest, -largest, infinity
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3555, 0x7BFF, 0xFBFF, 0x7C00]
# The first byte of a block of MXFP4, an exponent: both subnormal scales, the smallest normal one, 1/2, 1 and the largest
EXPONENTS = [0, 1, 2, 127, 128, 253, 254, 255]
N_MANY = 2000


def splitmix64(seed, n):
    """n 64-bit numbers (Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_blocks(name, block_bytes, seed, n_blocks):
    """Random bytes; bit 10 of each binary16 cleared, so that none is infinite or NaN."""
    n_words = -(-block_bytes * n_blocks // 8)
    data = splitmix64(seed, n_words).view(np.uint8)[: block_bytes * n_blocks].copy().reshape(n_blocks, block_bytes)
    for offset in HALVES[name]:
        data[:, offset + 1] &= 0xFB
    return data


def checksum(bits):
    """sum over i of (bits[i] + 1) * (2 i + 1), modulo 2^64."""
    with np.errstate(over="ignore"):
        i = np.arange(bits.size, dtype=np.uint64)
        return int(((bits.astype(np.uint64) + np.uint64(1)) * (i * np.uint64(2) + np.uint64(1))).sum(dtype=np.uint64))


def main():
    for index, (name, halves) in enumerate(HALVES.items()):
        qtype = GGMLQuantizationType[name]
        elements, block_bytes = GGML_QUANT_SIZES[qtype]
        if elements == 1:
            elements, block_bytes = 32, 32 * block_bytes
        seed = 1000 + index
        blocks = random_blocks(name, block_bytes, seed, 2 + (0 if elements == 256 else 8))
        # The extremes go into a block each (small blocks) or into the two most telling ones.
        if halves and elements == 32 and name != "F16":
            for row, bits in enumerate(EXTREMES):
                blocks[row, halves[0]], blocks[row, halves[0] + 1] = bits & 0xFF, bits >> 8
        elif name == "MXFP4":
            blocks[: len(EXPONENTS), 0] = EXPONENTS
        elif name == "F16":
            blocks[0].view(np.uint16)[: len(EXTREMES)] = EXTREMES
        elif name in ("F32", "BF16"):
            blocks[0].view(np.uint16)[: len(EXTREMES)] = [0, 0x8000, 1, 0x7F80, 0xFF80, 0x7F7F, 0x0080, 0x007F, 0x3F80]
        else:
            for row, bits in enumerate([0x83FF, 0x7BFF]):
                blocks[row, halves[0]], blocks[row, halves[0] + 1] = bits & 0xFF, bits >> 8
        with np.errstate(invalid="ignore"):
            floats = dequantize(blocks, qtype).view(np.uint32)
        lines = []
        for block, values in zip(blocks, floats):
            lines.append("block " + block.tobytes().hex())
            lines.append("float " + " ".join(f"{v:x}" for v in values))
        many = dequantize(random_blocks(name, block_bytes, seed, N_MANY), qtype).view(np.uint32)
        lines.append(f"many {seed} {N_MANY} {checksum(many.ravel()):x}")
        (pathlib.Path(__file__).parent / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
