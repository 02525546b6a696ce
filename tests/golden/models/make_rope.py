"""Writes rope_frequencies.txt: inverse frequencies and magnitudes as transformers' ROPE_INIT_FUNCTIONS compute them.

    python make_rope.py       # needs torch, transformers (5.x)

One case is a block of "key value..." lines, parameters first, then magnitude and frequencies (float32), then "end".
Parameters are those of published models where there is one (named by the case), factors of longrope are made up.
"""

import pathlib

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SHORT = [1.0 + 0.02 * i for i in range(48)]
LONG = [1.0 + 0.5 * i + 0.02 * i * i for i in range(48)]


def yarn(**more):
    return {"rope_type": "yarn"} | more


# name: (pairs * 2, theta, max positions, context asked for, scaling)
CASES = {
    "llama2_plain": (128, 10000.0, 4096, 4096, {"rope_type": "default"}),
    "vicuna_16k_linear": (128, 10000.0, 4096, 16384, {"rope_type": "linear", "factor": 4.0}),
    "dynamic_within": (128, 10000.0, 4096, 2048, {"rope_type": "dynamic", "factor": 2.0}),
    "dynamic_beyond": (128, 10000.0, 4096, 8192, {"rope_type": "dynamic", "factor": 2.0}),
    "dynamic_beyond_uneven": (100, 1000000.0, 32768, 100000, {"rope_type": "dynamic", "factor": 3.5}),
    "llama31_8b": (128, 500000.0, 131072, 131072,
                   {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192}),
    "llama32_1b": (64, 500000.0, 131072, 4096,
                   {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192}),
    "qwen25_yarn": (128, 1000000.0, 131072, 131072, yarn(factor=4.0, original_max_position_embeddings=32768)),
    "yarn_original_not_given": (128, 1000000.0, 40960, 40960, yarn(factor=4.0)),
    "yarn_attention_factor": (128, 10000.0, 65536, 65536,
                              yarn(factor=16.0, original_max_position_embeddings=4096, attention_factor=0.75)),
    "yarn_betas": (96, 150000.0, 65536, 65536,
                   yarn(factor=8.0, original_max_position_embeddings=8192, beta_fast=64.0, beta_slow=2.0)),
    "yarn_mscales": (64, 10000.0, 163840, 163840,
                     yarn(factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=0.707)),
    "yarn_mscale_alone": (64, 10000.0, 163840, 163840,
                          yarn(factor=40.0, original_max_position_embeddings=4096, mscale=0.707)),
    "yarn_tiny_original": (16, 100.0, 256, 24, yarn(factor=4.0, original_max_position_embeddings=4)),
    "phi3_128k_short": (96, 10000.0, 131072, 4096,
                        {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                         "original_max_position_embeddings": 4096}),
    "phi3_128k_long": (96, 10000.0, 131072, 4097,
                       {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                        "original_max_position_embeddings": 4096}),
    "longrope_factor": (96, 10000.0, 131072, 131072,
                        {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "factor": 8.0,
                         "original_max_position_embeddings": 4096}),
    "longrope_attention_factor": (96, 10000.0, 131072, 131072,
                                  {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG,
                                   "attention_factor": 1.25, "original_max_position_embeddings": 4096}),
}


def frequencies(rotated, theta, max_positions, context, scaling):
    config = transformers.LlamaConfig(hidden_size=rotated * 2, num_attention_heads=2, head_dim=rotated,
                                      max_position_embeddings=max_positions,
                                      rope_parameters={"rope_theta": theta} | scaling)
    if scaling["rope_type"] == "default":
        return transformers.models.llama.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    return ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, device=torch.device("cpu"), seq_len=context)


def main():
    lines = []
    for name, (rotated, theta, max_positions, context, scaling) in CASES.items():
        inverse, magnitude = frequencies(rotated, theta, max_positions, context, dict(scaling))
        lines += [f"case {name}", f"n_rotated {rotated}", f"theta {theta:g}", f"context_tokens {max_positions}",
                  f"chosen {context}"]
        for key, value in scaling.items():
            text = value if isinstance(value, str) else " ".join(
                f"{v:.9g}" for v in (value if isinstance(value, list) else [value]))
            lines.append(f"{key} {text}")
        lines += [f"magnitude {magnitude:.9g}", "frequencies " + " ".join(f"{v:.9g}" for v in inverse.tolist()), "end"]
    path = pathlib.Path(__file__).parent / "rope_frequencies.txt"
    path.write_text(f"# transformers {transformers.__version__}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
