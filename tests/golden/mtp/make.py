"""Writes the golden heads: for some golden models (../models), an MTP head beside the model and the logits it gives.

    python make.py  # needs numpy, torch, transformers (5.x); seconds on a CPU

transformers leaves the tensors of heads out, so the head is written here in double, by its description in DeepSeek-V3
(arXiv 2412.19437, section 2.2) and vLLM's model_executor/models/qwen3_next_mtp.py, from loops and matrix products
alone. The model's hidden states are those of transformers, as ../models/make.py runs it.

<case>/head.txt: "tensor NAME SHAPE" lines of the head, and "drafted ...": the draft tokens that the head gives, one
after another, after the case's tokens. <case>/logits.f32: little-endian floats [rows, vocab]: after each pair of hidden state
and next token of the text, then after each of the drafted tokens but the last.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "models"))
import make as models  # noqa: E402

N_DRAFTED = 5


def tensors_of(config):
    """Names and shapes of the head's tensors in published files."""
    d, head = config["hidden_size"], config["head_dim"]
    n_q, n_kv = config["num_attention_heads"], config["num_key_value_heads"]
    layer = "mtp.layers.0."
    shapes = {
        "mtp.fc.weight": [d, 2 * d],
        "mtp.pre_fc_norm_embedding.weight": [d],
        "mtp.pre_fc_norm_hidden.weight": [d],
        "mtp.norm.weight": [d],
        layer + "input_layernorm.weight": [d],
        layer + "post_attention_layernorm.weight": [d],
        layer + "self_attn.q_proj.weight": [2 * n_q * head, d],
        layer + "self_attn.k_proj.weight": [n_kv * head, d],
        layer + "self_attn.v_proj.weight": [n_kv * head, d],
        layer + "self_attn.o_proj.weight": [d, n_q * head],
        layer + "self_attn.q_norm.weight": [head],
        layer + "self_attn.k_norm.weight": [head],
    }
    if "num_experts" not in config:
        width = config["intermediate_size"]
        return shapes | {layer + f"mlp.{part}_proj.weight": [width, d] for part in ("gate", "up")} | {
            layer + "mlp.down_proj.weight": [d, width]}
    n, width, shared = (config[key] for key in ("num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"))
    shapes[layer + "mlp.gate.weight"] = [n, d]
    for expert in range(n):  # a tensor each, as published heads have them
        for part, shape in (("gate", [width, d]), ("up", [width, d]), ("down", [d, width])):
            shapes[layer + f"mlp.experts.{expert}.{part}_proj.weight"] = shape
    for part, shape in (("gate", [shared, d]), ("up", [shared, d]), ("down", [d, shared])):
        shapes[layer + f"mlp.shared_expert.{part}_proj.weight"] = shape
    shapes[layer + "mlp.shared_expert_gate.weight"] = [1, d]
    return shapes


class Head:
    """The head in double, with the keys and values of the positions so far."""

    def __init__(self, config, embedding, lm_head):
        self.config, self.embedding, self.lm_head = config, embedding, lm_head
        self.weights = {name: torch.from_numpy(models.value(name, shape)).double()
                        for name, shape in tensors_of(config).items()}
        self.keys, self.values = [], []

    def __getitem__(self, name):
        return self.weights[f"{name}.weight"]

    def norm(self, x, name):
        """RMS norm that multiplies by 1 + weight."""
        return x / torch.sqrt((x * x).mean() + self.config["rms_norm_eps"]) * (1.0 + self[name])

    def rotate(self, x, position):
        n = int(self.config["head_dim"] * self.config.get("partial_rotary_factor", 0.25))
        half = n // 2
        theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        out = x.clone()
        for i in range(half):
            angle = position * theta ** (-2.0 * i / n)
            cos, sin = math.cos(angle), math.sin(angle)
            out[i] = x[i] * cos - x[i + half] * sin
            out[i + half] = x[i + half] * cos + x[i] * sin
        return out

    def attention(self, x):
        layer, head = "mtp.layers.0.self_attn.", self.config["head_dim"]
        n_q, n_kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        position = len(self.keys)
        k = (self[layer + "k_proj"] @ x).view(n_kv, head)
        self.keys.append([self.rotate(self.norm(row, layer + "k_norm"), position) for row in k])
        self.values.append((self[layer + "v_proj"] @ x).view(n_kv, head))
        both = (self[layer + "q_proj"] @ x).view(n_q, 2, head)  # of each head its query, then its gate
        out = []
        for i in range(n_q):
            q = self.rotate(self.norm(both[i, 0], layer + "q_norm"), position)
            kv = i // (n_q // n_kv)
            scores = torch.stack([q @ keys[kv] for keys in self.keys]) / math.sqrt(head)
            mixed = torch.softmax(scores, 0) @ torch.stack([values[kv] for values in self.values])
            out.append(mixed * torch.sigmoid(both[i, 1]))
        return self[layer + "o_proj"] @ torch.cat(out)

    def gated(self, x, name):
        gate = self[name + "gate_proj"] @ x
        return self[name + "down_proj"] @ (gate * torch.sigmoid(gate) * (self[name + "up_proj"] @ x))

    def feed_forward(self, x):
        name = "mtp.layers.0.mlp."
        if "num_experts" not in self.config:
            return self.gated(x, name)
        p = torch.softmax(self[name + "gate"] @ x, 0)
        best = torch.topk(p, self.config["num_experts_per_tok"])
        out = torch.sigmoid(self[name + "shared_expert_gate"] @ x) * self.gated(x, name + "shared_expert.")
        for weight, expert in zip(best.values / best.values.sum(), best.indices):
            out = out + weight * self.gated(x, f"{name}experts.{int(expert)}.")
        return out

    def step(self, token, hidden):
        """The hidden state after the head's norm, and the logits, from the next token and the state before it."""
        x = self["mtp.fc"] @ torch.cat([self.norm(self.embedding[token], "mtp.pre_fc_norm_embedding"),
                                       self.norm(hidden, "mtp.pre_fc_norm_hidden")])
        x = x + self.attention(self.norm(x, "mtp.layers.0.input_layernorm"))
        x = x + self.feed_forward(self.norm(x, "mtp.layers.0.post_attention_layernorm"))
        x = self.norm(x, "mtp.norm")
        return x, self.lm_head @ x


def main():
    for name in ("qwen35", "qwen35_interval", "qwen35_moe"):
        config = json.loads((HERE.parent / "models" / name / "config.json").read_text())
        lines = (HERE.parent / "models" / name / "case.txt").read_text().splitlines()
        tokens = next([int(t) for t in line.split()[1:]] for line in lines if line.startswith("tokens "))
        model, _ = models.load(config)
        with torch.no_grad():
            states = model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
        head = Head(config, model.get_input_embeddings().weight, model.get_output_embeddings().weight)
        rows = []
        with torch.no_grad():
            for i, token in enumerate(tokens[1:]):
                hidden, logits = head.step(token, states[i])
                rows.append(logits)
            drafted = [int(rows[-1].argmax())]
            while len(drafted) < N_DRAFTED:
                hidden, logits = head.step(drafted[-1], hidden)
                rows.append(logits)
                drafted.append(int(logits.argmax()))
        best = torch.stack(rows[len(tokens) - 2:]).topk(2).values
        assert (best[:, 0] - best[:, 1]).min() > 1e-4, "two tokens are too close"
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        text = [f"tensor {tensor} " + " ".join(map(str, shape)) for tensor, shape in tensors_of(config).items()]
        text.append("drafted " + " ".join(map(str, drafted)))
        (folder / "head.txt").write_text("\n".join(text) + "\n")
        logits = torch.stack(rows).numpy()
        logits.astype("<f4").tofile(folder / "logits.f32")
        print(f"{name}: rms {np.sqrt((logits**2).mean()):.2f}, drafted {drafted}")


if __name__ == "__main__":
    main()
