"""Writes the golden heads: for some golden models (../models), an MTP head beside the model and the logits it gives.

    python make.py  # needs numpy, torch, transformers (5.x); seconds on a CPU

transformers leaves the tensors of heads out, so the head is written here in double, by its description in DeepSeek-V3
(arXiv 2412.19437, section 2.2), vLLM's model_executor/models/qwen3_next_mtp.py and glm4_moe_mtp.py, and SGLang's
glm4_moe_nextn.py, from loops and matrix products alone. The model's hidden states are those of transformers, as ../models/make.py runs it.

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


# The case whose head has an embedding and an LM head of its own.
WITH_OWN_EMBEDDINGS = "glm4_moe"


def is_glm(config):
    return config["model_type"] == "glm4_moe"


class Names:
    """Prefixes and names of the head's tensors in published files."""

    def __init__(self, config):
        self.layer = f"model.layers.{config['num_hidden_layers']}." if is_glm(config) else "mtp.layers.0."
        if is_glm(config):
            self.projection, self.output_norm = self.layer + "eh_proj", self.layer + "shared_head.norm"
            self.embedding_norm, self.hidden_norm = self.layer + "enorm", self.layer + "hnorm"
            self.embedding, self.lm_head = self.layer + "embed_tokens", self.layer + "shared_head.head"
            self.shared = self.layer + "mlp.shared_experts."
        else:
            self.projection, self.output_norm = "mtp.fc", "mtp.norm"
            self.embedding_norm, self.hidden_norm = "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden"
            self.shared = self.layer + "mlp.shared_expert."


def tensors_of(name, config):
    """Names and shapes of the head's tensors in published files."""
    d, head, vocab = config["hidden_size"], config["head_dim"], config["vocab_size"]
    n_q, n_kv = config["num_attention_heads"], config["num_key_value_heads"]
    names = Names(config)
    layer = names.layer
    shapes = {
        names.projection + ".weight": [d, 2 * d],
        names.embedding_norm + ".weight": [d],
        names.hidden_norm + ".weight": [d],
        names.output_norm + ".weight": [d],
        layer + "input_layernorm.weight": [d],
        layer + "post_attention_layernorm.weight": [d],
        layer + "self_attn.q_proj.weight": [(1 if is_glm(config) else 2) * n_q * head, d],
        layer + "self_attn.k_proj.weight": [n_kv * head, d],
        layer + "self_attn.v_proj.weight": [n_kv * head, d],
        layer + "self_attn.o_proj.weight": [d, n_q * head],
    }
    if name == WITH_OWN_EMBEDDINGS:
        shapes |= {names.embedding + ".weight": [vocab, d], names.lm_head + ".weight": [vocab, d]}
    if not is_glm(config):
        shapes |= {layer + "self_attn.q_norm.weight": [head], layer + "self_attn.k_norm.weight": [head]}
    elif config["attention_bias"]:
        shapes |= {layer + f"self_attn.{part}_proj.bias": [n * head] for part, n in (("q", n_q), ("k", n_kv), ("v", n_kv))}
    n = config.get("n_routed_experts") or config.get("num_experts")
    if n is None:
        width = config["intermediate_size"]
        return shapes | {layer + f"mlp.{part}_proj.weight": [width, d] for part in ("gate", "up")} | {
            layer + "mlp.down_proj.weight": [d, width]}
    width = config["moe_intermediate_size"]
    shared = config["n_shared_experts"] * width if is_glm(config) else config["shared_expert_intermediate_size"]
    shapes[layer + "mlp.gate.weight"] = [n, d]
    for expert in range(n):  # a tensor each, as published heads have them
        for part, shape in (("gate", [width, d]), ("up", [width, d]), ("down", [d, width])):
            shapes[layer + f"mlp.experts.{expert}.{part}_proj.weight"] = shape
    for part, shape in (("gate", [shared, d]), ("up", [shared, d]), ("down", [d, shared])):
        shapes[names.shared + f"{part}_proj.weight"] = shape
    if is_glm(config):
        shapes[layer + "mlp.gate.e_score_correction_bias"] = [n]
    else:
        shapes[layer + "mlp.shared_expert_gate.weight"] = [1, d]
    return shapes


class Head:
    """The head in double, with the keys and values of the positions so far."""

    def __init__(self, name, config, embedding, lm_head):
        self.config, self.names = config, Names(config)
        self.weights = {tensor: torch.from_numpy(models.value(tensor, shape)).double()
                        for tensor, shape in tensors_of(name, config).items()}
        own = name == WITH_OWN_EMBEDDINGS
        self.embedding = self[self.names.embedding] if own else embedding
        self.lm_head = self[self.names.lm_head] if own else lm_head
        self.keys, self.values = [], []

    def __getitem__(self, name):
        return self.weights[f"{name}.weight"]

    def norm(self, x, name):
        """RMS norm that multiplies by the weight, Qwen's by 1 + weight."""
        weight = self[name] if is_glm(self.config) else 1.0 + self[name]
        return x / torch.sqrt((x * x).mean() + self.config["rms_norm_eps"]) * weight

    def project(self, x, name):
        bias = self.weights.get(f"{name}.bias")
        return self[name] @ x + (0.0 if bias is None else bias)

    def rotate(self, x, position):
        rope = self.config.get("rope_parameters", {})
        share = self.config.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 0.25
        n = int(self.config["head_dim"] * share)
        half = n // 2
        theta = self.config.get("rope_theta") or rope["rope_theta"]
        out = x.clone()
        for i in range(half):
            angle = position * theta ** (-2.0 * i / n)
            cos, sin = math.cos(angle), math.sin(angle)
            out[i] = x[i] * cos - x[i + half] * sin
            out[i + half] = x[i + half] * cos + x[i] * sin
        return out

    def attention(self, x):
        layer, head = self.names.layer + "self_attn.", self.config["head_dim"]
        n_q, n_kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        position = len(self.keys)
        k = self.project(x, layer + "k_proj").view(n_kv, head)
        both = self.project(x, layer + "q_proj").view(n_q, -1, head)  # of each head its query; of Qwen, then its gate
        if not is_glm(self.config):
            k = torch.stack([self.norm(row, layer + "k_norm") for row in k])
        self.keys.append([self.rotate(row, position) for row in k])
        self.values.append(self.project(x, layer + "v_proj").view(n_kv, head))
        out = []
        for i in range(n_q):
            q = both[i, 0] if is_glm(self.config) else self.norm(both[i, 0], layer + "q_norm")
            q = self.rotate(q, position)
            kv = i // (n_q // n_kv)
            scores = torch.stack([q @ keys[kv] for keys in self.keys]) / math.sqrt(head)
            mixed = torch.softmax(scores, 0) @ torch.stack([values[kv] for values in self.values])
            out.append(mixed if is_glm(self.config) else mixed * torch.sigmoid(both[i, 1]))
        return self[layer + "o_proj"] @ torch.cat(out)

    def gated(self, x, name):
        gate = self[name + "gate_proj"] @ x
        return self[name + "down_proj"] @ (gate * torch.sigmoid(gate) * (self[name + "up_proj"] @ x))

    def feed_forward(self, x):
        name = self.names.layer + "mlp."
        if "num_experts_per_tok" not in self.config:
            return self.gated(x, name)
        n_chosen, scores = self.config["num_experts_per_tok"], self[name + "gate"] @ x
        out = self.gated(x, self.names.shared)
        if is_glm(self.config):
            p = torch.sigmoid(scores)
            chosen = torch.topk(p + self.weights[name + "gate.e_score_correction_bias"], n_chosen).indices
            weights = p[chosen]
            if self.config["norm_topk_prob"]:
                weights = weights / (weights.sum() + 1e-20)
            weights = weights * self.config["routed_scaling_factor"]
        else:
            p = torch.softmax(scores, 0)
            chosen = torch.topk(p, n_chosen).indices
            weights = p[chosen] / p[chosen].sum()
            out = torch.sigmoid(self[name + "shared_expert_gate"] @ x) * out
        for weight, expert in zip(weights, chosen):
            out = out + weight * self.gated(x, f"{name}experts.{int(expert)}.")
        return out

    def step(self, token, hidden):
        """The hidden state after the head's norm, and the logits, from the next token and the state before it."""
        names = self.names
        x = self[names.projection] @ torch.cat([self.norm(self.embedding[token], names.embedding_norm),
                                                self.norm(hidden, names.hidden_norm)])
        x = x + self.attention(self.norm(x, names.layer + "input_layernorm"))
        x = x + self.feed_forward(self.norm(x, names.layer + "post_attention_layernorm"))
        x = self.norm(x, names.output_norm)
        return x, self.lm_head @ x


def main():
    for name in ("qwen35", "qwen35_interval", "qwen35_moe", "glm4_moe", "glm4_moe_plain"):
        config = json.loads((HERE.parent / "models" / name / "config.json").read_text())
        lines = (HERE.parent / "models" / name / "case.txt").read_text().splitlines()
        tokens = next([int(t) for t in line.split()[1:]] for line in lines if line.startswith("tokens "))
        model, _ = models.load(config)
        with torch.no_grad():
            states = model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
        head = Head(name, config, model.get_input_embeddings().weight, model.get_output_embeddings().weight)
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
        text = [f"tensor {tensor} " + " ".join(map(str, shape)) for tensor, shape in tensors_of(name, config).items()]
        text.append("drafted " + " ".join(map(str, drafted)))
        (folder / "head.txt").write_text("\n".join(text) + "\n")
        logits = torch.stack(rows).numpy()
        logits.astype("<f4").tofile(folder / "logits.f32")
        print(f"{name}: rms {np.sqrt((logits**2).mean()):.2f}, drafted {drafted}")


if __name__ == "__main__":
    main()
