"""Writes the golden models: for each case of cases.py a config.json, case.txt and logits.f32 made with transformers.

    python make.py [CASE...]  # needs numpy, torch, transformers (5.x); seconds on a CPU

case.txt: "context N" (the context length that rope is fixed for), "tokens ..." and one "tensor NAME SHAPE" line for
each weight that a checkpoint of the model holds. logits.f32: little-endian floats [rows, vocab] of the last rows
positions. Weights are not stored: value() gives them from name and index, here and in tests/support/golden_model.cpp.
For cases.GREEDY_CASES, a line "greedy ..." has the 64 tokens that follow, each the most likely one. For cases.Q8_CASES,
logits_q8.f32 has the logits with the KV cache of --kv-type q8.
"""

import json
import math
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

import cases

HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1


def fnv1a(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def noise(name, count):
    """Sixteen bits of splitmix64, state fnv1a(name) + index * gamma, as multiples of 2^-15 in [-1, 1)."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(48)).astype(np.float64) - 32768.0) / 32768.0


def value(name, shape):
    """A tensor's values. Every one is exact in float32: the scales are powers of two, so both sides agree to the bit."""
    u = noise(name, math.prod(shape))
    if name.endswith(("norm.weight", "layer_scalar", "norm_1.weight", "norm_2.weight", "router.scale",
                      "per_expert_scale")):
        values = 1.0 + 0.25 * u
    elif name.endswith(".bias"):
        values = 0.5 * u
    elif name.endswith(".A_log"):  # rates of decay from 0.4 to 2.7, of steps from 0.1 to 0.7
        values = u
    elif name.endswith(".dt_bias"):
        values = u - 1.0
    elif "embed_tokens" in name:
        values = u
    else:
        # About 1/sqrt(fan-in); queries and keys twice that, so that attention is far from an average. Gemma 4 divides
        # the inputs of its router by the root of the fan-in; eight times that makes its logits as large as others.
        scale = 2.0 ** -((shape[-1].bit_length() - 1) // 2)
        if any(part in name for part in ("q_proj", "k_proj", "qkv_proj")):
            scale *= 2.0
        if "router.proj" in name:
            scale *= 8.0
        values = scale * u
    return values.reshape(shape).astype(np.float32)


# Names in checkpoints of mixtures of experts, which transformers fuses in memory (conversion_mapping.py).
EXPERT_PARTS = {"mixtral": ("w1", "w3", "w2")}
# Families whose published files have the experts as transformers has them in memory.
FUSED_EXPERTS = ("qwen3_5_moe_text", "gpt_oss")


def checkpoint_name(model_type, name):
    """The name of a tensor of the model in published files."""
    return name.replace(".mlp.gate.", ".block_sparse_moe.gate.") if model_type == "mixtral" else name


def expert_tensors(model_type, name, shape):
    """The tensors of published files that a fused one consists of: for each expert a list of (name, shape)."""
    gate, up, down = EXPERT_PARTS.get(model_type, ("gate_proj", "up_proj", "down_proj"))
    folder = name.rsplit(".", 1)[0]
    if model_type == "mixtral":
        folder = folder.replace(".mlp.", ".block_sparse_moe.")
    n, rows, cols = shape
    if name.endswith("gate_up_proj"):
        parts = ((gate, [rows // 2, cols]), (up, [rows // 2, cols]))
    else:
        parts = ((down, [rows, cols]),)
    return [[(f"{folder}.{expert}.{part}.weight", size) for part, size in parts] for expert in range(n)]


def mxfp4_tensors(name, shape):
    """The tensors (name, shape) of published files that hold a matrix of gpt-oss's experts, which transformers has as
    [experts, cols, rows]."""
    n, cols, rows = shape
    return [(f"{name}_blocks", [n, rows, cols // 32, 16]), (f"{name}_scales", [n, rows, cols // 32])]


def mxfp4_bytes(name, shape):
    """Random codes; scales that give about 1/sqrt(fan-in)."""
    if name.endswith("_scales"):
        return (119.0 + 2.0 * (noise(name, math.prod(shape)) + 1.0)).astype(np.uint8).reshape(shape)
    return ((noise(name, math.prod(shape)) + 1.0) * 128.0).astype(np.uint8).reshape(shape)


def mxfp4_values(name, shape):
    """What transformers itself computes from the bytes."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks, scales = (torch.from_numpy(mxfp4_bytes(*tensor)) for tensor in mxfp4_tensors(name, shape))
    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).numpy()


def load(config):
    """The model of a config.json as transformers itself reads one, with generated weights, in double."""
    # "su" is the first name of longrope; transformers 5.23 renames it too late for its own validation.
    floats = {key: value for key, value in config.items() if key != "quantization_config"}
    spelled = json.dumps(floats).replace('"su"', '"longrope"')
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(spelled)
        parsed = transformers.AutoConfig.from_pretrained(folder)
    kind = transformers.AutoModelForImageTextToText if "text_config" in config else transformers.AutoModelForCausalLM
    # The other ways to compute experts have no doubles.
    has_experts = "num_experts_per_tok" in config or "top_k_experts" in config
    experts = {"experts_implementation": "eager"} if has_experts else {}
    model = kind.from_config(parsed, attn_implementation="eager", **experts).eval()
    # The text model inside a larger one has the names that it would have alone.
    names = {name: name.replace("model.language_model.", "model.") for name in model.state_dict()}
    shapes = {names[name]: list(tensor.shape) for name, tensor in model.state_dict().items() if "vision" not in name}
    if config["tie_word_embeddings"]:
        shapes.pop("lm_head.weight", None)
    model_type = config.get("model_type")
    is_mxfp4 = "quantization_config" in config
    state, in_files = {}, {}
    for name, alone in names.items():
        if alone not in shapes:
            continue
        if model_type == "gpt_oss" and is_mxfp4 and alone.endswith(("gate_up_proj", "down_proj")):
            in_files |= dict(mxfp4_tensors(alone, shapes[alone]))
            values = mxfp4_values(alone, shapes[alone])
        elif ".mlp.experts." in alone and model_type not in FUSED_EXPERTS:
            experts = expert_tensors(model_type, alone, shapes[alone])
            in_files |= {part: size for expert in experts for part, size in expert}
            values = np.stack([np.concatenate([value(part, size) for part, size in expert]) for expert in experts])
        else:
            in_files[checkpoint_name(model_type, alone)] = shapes[alone]
            values = value(checkpoint_name(model_type, alone), shapes[alone])
        state[name] = torch.from_numpy(values)
    model.load_state_dict(state, strict=False)
    model.tie_weights()
    return model.double(), in_files


def run(config, tokens):
    model, shapes = load(config)
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy(), shapes


def greedy(config, tokens, n=64):
    """The tokens that follow `tokens`, each the most likely one; every pass computes the whole text."""
    model, _ = load(config)
    text = list(tokens)
    for _ in range(n):
        with torch.no_grad():
            logits = model(torch.tensor([text]), use_cache=False).logits[0, -1]
        best = logits.topk(2).values
        assert best[0] - best[1] > 1e-4, "two tokens are too close"
        text.append(int(logits.argmax()))
    return text[len(tokens):]


def q8(rows):
    """Rows [..., head_dim] of doubles as a q8 cache keeps them (kernels/base/q8_row.h): rounded in float."""
    blocks = []
    for block in rows.float().split(32, dim=-1):
        exact = block.abs().amax(-1, keepdim=True) / torch.tensor(127.0)
        scale = ((exact.view(torch.int32) + 0xFFFF) >> 16 << 16).view(torch.float32)  # bfloat16, rounded up
        blocks.append(torch.round(block * (torch.tensor(1.0) / scale)).double() * scale.double())
    return torch.cat(blocks, dim=-1)


def run_q8(config, tokens):
    """run() with keys and values rounded where eager attention repeats them for the query heads."""
    model, _ = load(config)
    module = sys.modules[type(model).__module__]
    plain = module.repeat_kv
    module.repeat_kv = lambda rows, times: plain(q8(rows), times)
    try:
        with torch.no_grad():
            return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    finally:
        module.repeat_kv = plain


def nmse(a, b):
    return float(((a - b) ** 2).sum() / (b**2).sum())


def other_spelling(config):
    """The same configuration with rope, or the heads of some layers, in the other of two spellings."""
    if "text_config" in config:
        return config | {"text_config": other_spelling(config["text_config"])}
    if "global_head_dim" in config:
        return cases.with_layer_config(config)
    if "per_layer_config" in config:
        return config
    if "rope_parameters" not in config:
        return cases.renamed(config)
    config = dict(config)
    scaling = dict(config.pop("rope_parameters"))
    if "sliding_attention" in scaling:
        config["rope_local_base_freq"] = scaling["sliding_attention"]["rope_theta"]
        scaling = dict(scaling["full_attention"])
    config["rope_theta"] = scaling.pop("rope_theta")
    if "partial_rotary_factor" in scaling:
        config["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    if scaling["rope_type"] != "default":
        config["rope_scaling"] = scaling
    return config


def main(names):
    print("transformers", transformers.__version__, "torch", torch.__version__)
    for name, case in cases.CASES.items():
        if names and name not in names:
            continue
        config, n_tokens = case["config"], case["n_tokens"]
        tokens = [1] + ((noise(name, n_tokens - 1) + 1.0) * (cases.VOCAB / 2)).astype(int).tolist()
        logits, shapes = run(config, tokens)
        same = nmse(run(other_spelling(config), tokens)[0], logits)
        assert same == 0.0, f"{name}: the two spellings of rope differ by {same}"
        rows = logits[-cases.TOKENS:]
        effect = ""
        if case["without"] is not None:
            moved = nmse(run(cases.changed(config, case["without"]), tokens)[0][-cases.TOKENS:], rows)
            assert moved > 1e-2, f"{name}: what it shows moves the logits by {moved} only"
            effect = f", without it {moved:.1e}"
        print(f"{name}: rms {math.sqrt((rows**2).mean()):.2f}{effect}")
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        lines = [f"context {case['context']}", "tokens " + " ".join(map(str, tokens))]
        lines += [f"tensor {tensor} " + " ".join(map(str, shape)) for tensor, shape in shapes.items()]
        if name in cases.GREEDY_CASES:
            lines.append("greedy " + " ".join(map(str, greedy(config, tokens))))
        (folder / "case.txt").write_text("\n".join(lines) + "\n")
        rows.astype("<f4").tofile(folder / "logits.f32")
        if name in cases.Q8_CASES:
            rounded = run_q8(config, tokens)[-cases.TOKENS:]
            print(f"{name}: a q8 cache moves the logits by {nmse(rounded, rows):.1e}")
            rounded.astype("<f4").tofile(folder / "logits_q8.f32")


if __name__ == "__main__":
    main(sys.argv[1:])
