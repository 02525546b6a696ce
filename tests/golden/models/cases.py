"""The tiny models of the golden files: one entry a case, as the config.json that is committed and what is run on it.

Sizes are small on purpose and uneven where an architecture allows it (head_dim that is no power of two, d_model that
is not heads * head_dim). Contexts of rope scalings are tiny too, so that each formula changes the frequencies that 24
positions can tell apart; make.py checks that it does.
"""

VOCAB = 64
TOKENS = 24


def _config(architecture, model_type, changes):
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    config.update(changes)
    return config


def llama(**changes):
    return _config("LlamaForCausalLM", "llama", changes)


def mistral(**changes):
    return _config("MistralForCausalLM", "mistral", changes)


def qwen2(**changes):
    return _config("Qwen2ForCausalLM", "qwen2", {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0} | changes)


def qwen3(**changes):
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 16, "attention_bias": False}
    return _config("Qwen3ForCausalLM", "qwen3", defaults | changes)


def phi3(**changes):
    # Three query heads of 16 on one key/value head; pad_token_id must lie in the vocabulary.
    defaults = {"hidden_size": 48, "intermediate_size": 40, "num_attention_heads": 3, "num_key_value_heads": 1,
                "pad_token_id": 0, "original_max_position_embeddings": 512}
    return _config("Phi3ForCausalLM", "phi3", defaults | changes)


def gemma2(**changes):
    defaults = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 16, "query_pre_attn_scalar": 16, "pad_token_id": 0,
                "rms_norm_eps": 1e-6, "sliding_window": 7, "attn_logit_softcapping": 4.0,
                "final_logit_softcapping": 3.0, "tie_word_embeddings": True, "num_hidden_layers": 3,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    config = _config("Gemma2ForCausalLM", "gemma2", defaults | changes)
    del config["hidden_act"]
    return config


def gemma3(**changes):
    defaults = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 16, "query_pre_attn_scalar": 16, "pad_token_id": 0,
                "rms_norm_eps": 1e-6, "sliding_window": 7, "tie_word_embeddings": True, "num_hidden_layers": 3,
                "rope_theta": 10000.0, "rope_local_base_freq": 100.0,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
    config = _config("Gemma3ForCausalLM", "gemma3_text", defaults | changes)
    del config["hidden_act"]
    return config


def ministral3(**changes):
    # Queries grow every 8 positions. The lower bound of yarn is negative for such a context, and is taken as 0.
    rope = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8,
            "max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.75}
    config = _config("Ministral3ForCausalLM", "ministral3",
                     {"head_dim": 12, "max_position_embeddings": 512, "sliding_window": None, "pad_token_id": 0,
                      "rope_parameters": rope} | changes)
    del config["rope_theta"]
    return config


def smollm3(**changes):
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 100.0, "tie_word_embeddings": True, "num_hidden_layers": 5,
                "pad_token_id": 0, "use_sliding_window": False, "sliding_window": None}
    return _config("SmolLM3ForCausalLM", "smollm3", defaults | changes)


def granite(**changes):
    defaults = {"embedding_multiplier": 3.0, "attention_multiplier": 0.5, "residual_multiplier": 0.35,
                "logits_scaling": 4.0, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
                "num_hidden_layers": 3, "pad_token_id": 0}
    return _config("GraniteForCausalLM", "granite", defaults | changes)


def muse_glimmer(**changes):
    # The last layer and the one four before it see everything, without RoPE. head_dim times heads is not hidden_size.
    defaults = {"head_dim": 12, "sliding_window": 7, "num_hidden_layers": 6, "num_key_value_heads": 1, "rope_theta": 100.0,
                "pad_token_id": 0, "hidden_activation": "silu", "qk_scale_factor": 1.7, "output_multiplier": 0.3,
                "final_logit_softcapping": 2.0, "post_norm_eps": 0.5, "attention_bias": False}
    text = _config("", "muse_glimmer_text", defaults | changes)
    for key in ("architectures", "hidden_act", "torch_dtype"):
        del text[key]
    vision = {"model_type": "muse_glimmer_vision", "hidden_size": 16, "num_attention_heads": 1, "num_hidden_layers": 1,
              "intermediate_size": 16, "pos_emb_height": 2, "pos_emb_width": 2, "patch_size": 2}
    return {"architectures": ["MuseGlimmerForConditionalGeneration"], "model_type": "muse_glimmer",
            "out_hidden_size": 64, "projector_hidden_size": 16, "image_token_id": VOCAB, "video_token_id": VOCAB + 1,
            "tie_word_embeddings": False, "text_config": text, "vision_config": vision}


def gemma4(**changes):
    """Windowed layers have other heads than the others, and their own sizes, none of which is a power of two."""
    defaults = {"hidden_activation": "gelu_pytorch_tanh", "hidden_size": 40, "intermediate_size": 56, "pad_token_id": 0,
                "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 12, "global_head_dim": 20,
                "num_global_key_value_heads": 2, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
                "rms_norm_eps": 1e-6, "sliding_window": 7, "tie_word_embeddings": True, "num_hidden_layers": 4,
                "final_logit_softcapping": 3.0,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
                "rope_parameters": {
                    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e3},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e2}}}
    config = _config("Gemma4ForCausalLM", "gemma4_text", defaults | changes)
    for key in ("hidden_act", "rope_theta"):
        del config[key]
    config["dtype"] = config.pop("torch_dtype")
    return config


def gemma4_moe(**changes):
    """As 26B-A4B: experts beside the dense feed-forward of every layer."""
    return gemma4(**{"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 22} | changes)


def gemma4_unified(**changes):
    config = gemma4(**changes)
    del config["hidden_size_per_layer_input"]
    return config | {"architectures": ["Gemma4UnifiedForCausalLM"], "model_type": "gemma4_unified_text"}


def qwen3_moe(**changes):
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "head_dim": 16, "attention_bias": False, "hidden_size": 40,
                "num_hidden_layers": 3, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2,
                "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": False,
                "sliding_window": None}
    return _config("Qwen3MoeForCausalLM", "qwen3_moe", defaults | changes)


def mixtral(**changes):
    defaults = {"rope_theta": 1000000.0, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
                "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
    return _config("MixtralForCausalLM", "mixtral", defaults | changes)


def glm4_moe(**changes):
    defaults = {"attention_bias": True, "head_dim": 12, "hidden_size": 40, "num_hidden_layers": 3, "partial_rotary_factor": 0.5,
                "moe_intermediate_size": 24, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1,
                "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1,
                "topk_group": 1, "use_qk_norm": False, "num_nextn_predict_layers": 0, "pad_token_id": 0}
    return _config("Glm4MoeForCausalLM", "glm4_moe", defaults | changes)


def qwen35(**changes):
    """Three delta nets, whose heads have sizes that are no multiples of 16, and attention."""
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 1e3, "head_dim": 24, "attention_bias": False, "hidden_size": 40,
                "num_hidden_layers": 4, "pad_token_id": 0, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_conv_kernel_dim": 4}
    return _config("Qwen3_5ForCausalLM", "qwen3_5_text", defaults | changes)


def qwen35_moe(**changes):
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 1e3, "head_dim": 24, "attention_bias": False, "hidden_size": 40,
                "num_hidden_layers": 4, "pad_token_id": 0, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
                "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20, "num_experts": 8,
                "num_experts_per_tok": 2}
    config = _config("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", defaults | changes)
    del config["intermediate_size"]
    return config


def qwen3_next(**changes):
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 1e3, "head_dim": 24, "attention_bias": False, "hidden_size": 40,
                "num_hidden_layers": 4, "pad_token_id": 0, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
                "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_conv_kernel_dim": 4,
                "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "num_experts": 8,
                "num_experts_per_tok": 3, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return _config("Qwen3NextForCausalLM", "qwen3_next", defaults | changes)


def olmoe(**changes):
    defaults = {"hidden_size": 48, "intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3,
                "norm_topk_prob": False, "num_hidden_layers": 3, "clip_qkv": None, "attention_bias": False,
                "pad_token_id": 0}
    return _config("OlmoeForCausalLM", "olmoe", defaults | changes)


def gpt_oss(**changes):
    """Windowed and other layers alternate. The bounds of yarn are not rounded, and lie between pairs 0 and 6 of a head."""
    rope = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "beta_fast": 4.0,
            "beta_slow": 0.5, "truncate": False}
    defaults = {"hidden_size": 40, "intermediate_size": 24, "head_dim": 12, "num_attention_heads": 6,
                "num_hidden_layers": 3, "num_local_experts": 8, "num_experts_per_tok": 4, "sliding_window": 7,
                "rope_theta": 50.0, "attention_bias": True, "pad_token_id": 0, "swiglu_limit": 0.5, "rope_scaling": rope,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
    return _config("GptOssForCausalLM", "gpt_oss", defaults | changes)


def gemma4_rope(**full):
    return {"rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1e2} | full,
                                "sliding_attention": {"rope_type": "default", "rope_theta": 1e2}}}


def with_layer_config(config):
    """The spelling that transformers 5.24 writes: changed fields of numbered layers."""
    config = dict(config)
    heads = {"head_dim": config.pop("global_head_dim")}
    n_kv_heads = config.pop("num_global_key_value_heads")
    if config["attention_k_eq_v"]:
        heads["num_key_value_heads"] = n_kv_heads
    types = config["layer_types"] or ["?", "?", "?", "?", "?", "full_attention"]
    n_layers = config["num_hidden_layers"]
    full = [i for i in range(n_layers) if i == n_layers - 1 or types[i % len(types)] == "full_attention"]
    config["per_layer_config"] = {str(i): heads for i in full}
    return config


def changed(config, changes):
    """The configuration with other fields of the text model."""
    if "text_config" in config:
        return config | {"text_config": config["text_config"] | changes}
    return config | changes


def renamed(config):
    """The spelling of transformers 5: rope_parameters for rope_theta, rope_scaling and partial_rotary_factor."""
    if "text_config" in config:
        return config | {"text_config": renamed(config["text_config"])}
    config = dict(config)
    scaling = dict(config.pop("rope_scaling", None) or {})
    if "rope_local_base_freq" in config:  # Gemma 3: rope_scaling is that of full attention
        full = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"} | scaling
        local = {"rope_theta": config.pop("rope_local_base_freq"), "rope_type": "default"}
        config["rope_parameters"] = {"full_attention": full, "sliding_attention": local}
        config["dtype"] = config.pop("torch_dtype")
        return config
    parameters = {"rope_theta": config.pop("rope_theta"),
                  "rope_type": scaling.pop("rope_type", scaling.pop("type", "default"))}
    if "partial_rotary_factor" in config:
        parameters["partial_rotary_factor"] = config.pop("partial_rotary_factor")
    config["rope_parameters"] = parameters | scaling
    if "torch_dtype" in config:
        config["dtype"] = config.pop("torch_dtype")
    return config


# Eight divisors for a head of 16, six for the 12 of 16 that turn in Phi-4-mini's manner.
SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0]
LONG = [1.25, 1.5, 2.0, 3.0, 4.5, 6.0, 8.0, 10.0]

# name: (config, what the case shows: the same config without it, which must give other logits)
# n_tokens and context (the length that frequencies are fixed for) default to TOKENS; rows are the last TOKENS positions.
CASES = {}


def case(name, config, without=None, n_tokens=TOKENS, context=None):
    CASES[name] = {"config": config, "without": without, "n_tokens": n_tokens, "context": context or n_tokens}


case("llama_mha", llama(num_key_value_heads=4))
case("llama_gqa", llama(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, num_key_value_heads=2))
case("llama_bias_tied", llama(attention_bias=True, tie_word_embeddings=True), {"attention_bias": False})
case("llama_rope_llama3",
     llama(rope_theta=1000.0, tie_word_embeddings=True,
           rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                         "original_max_position_embeddings": 64, "rope_type": "llama3"}),
     {"rope_scaling": None})
case("llama_rope_linear", llama(rope_scaling={"type": "linear", "factor": 4.0}), {"rope_scaling": None})
# transformers rescales dynamic frequencies for the length of the text (24, above the 16 of the file); the same number
# is chosen as the context at load, so both agree.
case("llama_rope_dynamic", llama(max_position_embeddings=16, rope_scaling={"type": "dynamic", "factor": 4.0}),
     {"rope_scaling": None})
case("llama_rope_yarn",
     renamed(llama(rope_theta=100.0, max_position_embeddings=256,
                   rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})),
     {"rope_parameters": {"rope_theta": 100.0, "rope_type": "default"}})
case("llama_rope_yarn_mscale",
     llama(rope_theta=100.0, max_position_embeddings=256,
           rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0,
                         "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.5}),
     {"rope_scaling": None})
case("llama_two_chunks", llama(), n_tokens=300)
case("mistral_window", mistral(head_dim=12, sliding_window=7), {"sliding_window": None})
case("mistral_no_window", mistral(head_dim=12, sliding_window=None))
case("mistral_window_two_chunks", mistral(head_dim=12, sliding_window=40), {"sliding_window": 41}, n_tokens=300)
case("qwen2_tied", qwen2(tie_word_embeddings=True, use_sliding_window=False, sliding_window=6, max_window_layers=1))
case("qwen2_upper_windows",
     qwen2(num_hidden_layers=3, use_sliding_window=True, sliding_window=6, max_window_layers=2),
     {"use_sliding_window": False})
case("qwen3", renamed(qwen3(use_sliding_window=False, sliding_window=None, max_window_layers=2)))
case("qwen3_tied_yarn",
     qwen3(tie_word_embeddings=True, rope_theta=100.0, max_position_embeddings=64,
           rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
     {"rope_scaling": None})
case("phi3_window", phi3(sliding_window=9), {"sliding_window": None})
case("phi3_partial_rotary",
     renamed(phi3(partial_rotary_factor=0.75, tie_word_embeddings=True, max_position_embeddings=64,
                  original_max_position_embeddings=16, sliding_window=512,
                  rope_scaling={"type": "longrope", "short_factor": SHORT[:6], "long_factor": LONG[:6]})),
     {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 1.0}})
# transformers chooses the factors by the length of the text, 24: short below the original 32, long above the 16.
case("phi3_longrope_short",
     phi3(max_position_embeddings=128, original_max_position_embeddings=32,
          rope_scaling={"type": "longrope", "short_factor": SHORT, "long_factor": LONG}),
     {"rope_scaling": None})
case("phi3_longrope_long",
     phi3(max_position_embeddings=64, original_max_position_embeddings=16,
          rope_scaling={"type": "su", "short_factor": SHORT, "long_factor": LONG}),
     {"rope_scaling": None})
case("gemma2", gemma2(), {"attn_logit_softcapping": None})
case("gemma2_scale", gemma2(query_pre_attn_scalar=40, num_key_value_heads=1), {"query_pre_attn_scalar": 16})
case("gemma2_two_chunks", gemma2(sliding_window=40), {"sliding_window": 41}, n_tokens=300)
case("gemma3", gemma3(), {"rope_local_base_freq": 10000.0})
case("gemma3_linear", gemma3(rope_theta=100.0, rope_scaling={"rope_type": "linear", "factor": 8.0}),
     {"rope_scaling": None})
case("gemma3_scale", renamed(gemma3(query_pre_attn_scalar=40, head_dim=12, num_key_value_heads=1)),
     {"query_pre_attn_scalar": 12})
case("gemma3_two_chunks", gemma3(sliding_window=40, num_hidden_layers=7, layer_types=None), {"sliding_window": 41},
     n_tokens=300)
case("gemma4", gemma4(), {"attention_k_eq_v": False})
case("gemma4_values", gemma4(attention_k_eq_v=False), {"final_logit_softcapping": None})
case("gemma4_untied", gemma4(tie_word_embeddings=False, num_global_key_value_heads=1), {"attention_k_eq_v": False})
case("gemma4_bias", gemma4(attention_bias=True, final_logit_softcapping=None), {"attention_bias": False})
case("gemma4_rope", gemma4(**gemma4_rope(partial_rotary_factor=0.7, factor=4.0)), gemma4_rope(partial_rotary_factor=1.0))
case("gemma4_unified", with_layer_config(gemma4_unified(final_logit_softcapping=None)), {"sliding_window": 1000})
# The default pattern, where the last layer has no window either; the default RoPE.
case("gemma4_two_chunks",
     gemma4(sliding_window=40, num_hidden_layers=8, layer_types=None, num_global_key_value_heads=1,
            rope_parameters=None),
     {"sliding_window": 41}, n_tokens=300)

case("gemma4_moe", gemma4_moe(), {"top_k_experts": 3})
# Every token chooses all experts.
case("gemma4_moe_all",
     gemma4_moe(num_experts=5, top_k_experts=5, num_hidden_layers=3, attention_k_eq_v=False, intermediate_size=52,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
     {"enable_moe_block": False})
# As many rows as take several waves of experts.
case("gemma4_moe_two_chunks",
     with_layer_config(gemma4_moe(sliding_window=40, num_hidden_layers=7, layer_types=None, num_experts=16,
                                  top_k_experts=4, num_global_key_value_heads=1)),
     {"top_k_experts": 3}, n_tokens=300)

case("ministral3", ministral3(), {"rope_parameters": ministral3()["rope_parameters"] | {"llama_4_scaling_beta": 0.0}})
case("ministral3_tied_mscale",
     ministral3(tie_word_embeddings=True, num_hidden_layers=3,
                rope_parameters=ministral3()["rope_parameters"] | {"mscale_all_dim": 0.5, "beta_fast": 2.0}),
     {"rope_parameters": ministral3()["rope_parameters"]})
case("ministral3_two_chunks",
     ministral3(rope_parameters=ministral3()["rope_parameters"] | {"original_max_position_embeddings": 64,
                                                                   "max_position_embeddings": 256}),
     {"rope_parameters": ministral3()["rope_parameters"] | {"original_max_position_embeddings": 64,
                                                            "llama_4_scaling_beta": 0.0}}, n_tokens=300)
# As Phi-4: neither window nor longrope.
case("phi3_plain", phi3(max_position_embeddings=512, sliding_window=None, num_attention_heads=6, num_key_value_heads=2))
case("phi3_partial_rotary_short",
     renamed(phi3(partial_rotary_factor=0.75, max_position_embeddings=512,
                  original_max_position_embeddings=128, sliding_window=512,
                  rope_scaling={"type": "longrope", "short_factor": SHORT[:6], "long_factor": LONG[:6]})),
     {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.75}})
case("muse_glimmer", muse_glimmer(), {"post_norm_eps": 1e-8})
case("muse_glimmer_scale", renamed(muse_glimmer(post_norm_eps=1e-8, tie_word_embeddings=False)),
     {"qk_scale_factor": 1.0})
case("muse_glimmer_bias",
     muse_glimmer(attention_bias=True, num_hidden_layers=4, layer_rope_theta=[0, 100.0, 100.0, 0], num_key_value_heads=2,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"]),
     {"layer_rope_theta": [100.0, 100.0, 100.0, 0]})
case("muse_glimmer_two_chunks", muse_glimmer(sliding_window=40, post_norm_eps=1e-8), {"sliding_window": 41},
     n_tokens=300)
case("smollm3", smollm3(), {"no_rope_layer_interval": 6})
case("smollm3_list", renamed(smollm3(no_rope_layers=[0, 1, 1, 0, 1], attention_bias=True, tie_word_embeddings=False)),
     {"no_rope_layers": [1, 0, 0, 1, 0]})
case("smollm3_windows", smollm3(use_sliding_window=True, sliding_window=5, no_rope_layer_interval=2),
     {"use_sliding_window": False})
case("granite", granite(), {"residual_multiplier": 1.0})
case("granite_bias",
     renamed(granite(attention_bias=True, tie_word_embeddings=False, num_key_value_heads=4, attention_multiplier=4.0)),
     {"attention_multiplier": 0.25})

case("qwen3_moe", qwen3_moe(), {"norm_topk_prob": False})
case("qwen3_moe_dense_layer",
     renamed(qwen3_moe(num_experts=11, num_experts_per_tok=3, norm_topk_prob=False, mlp_only_layers=[1],
                       tie_word_embeddings=True)),
     {"norm_topk_prob": True})
# As many rows as take several waves of experts.
case("qwen3_moe_two_chunks", qwen3_moe(num_experts_per_tok=4), {"num_experts_per_tok": 3}, n_tokens=300)
case("mixtral", mixtral(), {"num_experts_per_tok": 1})
# Every token chooses all experts.
case("mixtral_all", mixtral(num_local_experts=5, num_experts_per_tok=5), {"num_experts_per_tok": 3})
case("glm4_moe", glm4_moe(), {"routed_scaling_factor": 1.0})
case("glm4_moe_plain",
     renamed(glm4_moe(attention_bias=False, norm_topk_prob=False, routed_scaling_factor=1.0, first_k_dense_replace=0,
                      n_shared_experts=2, tie_word_embeddings=True)),
     {"norm_topk_prob": True})

# A quarter of each head rotates, also where no field says so.
case("qwen35", qwen35(partial_rotary_factor=0.25), {"linear_conv_kernel_dim": 2})
case("qwen35_interval",
     renamed(qwen35(full_attention_interval=2, linear_num_value_heads=6, linear_key_head_dim=16,
                    linear_value_head_dim=16, tie_word_embeddings=True, num_attention_heads=3, num_key_value_heads=1)),
     {"full_attention_interval": 4})
# Value heads as many as key heads; a list of layers that no interval gives; three chunks of 64 tokens and more.
case("qwen35_two_chunks",
     qwen35(linear_num_key_heads=3, linear_num_value_heads=3, linear_conv_kernel_dim=3, linear_value_head_dim=8,
            layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
            rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}),
     {"rope_scaling": None}, n_tokens=300)

case("qwen35_moe", qwen35_moe(), {"num_experts_per_tok": 3})
case("qwen35_moe_interval",
     renamed(qwen35_moe(full_attention_interval=2, linear_num_value_heads=2, tie_word_embeddings=True,
                        num_experts_per_tok=4)),
     {"full_attention_interval": 4}, n_tokens=300)
case("qwen3_next", qwen3_next(), {"num_experts_per_tok": 2})
case("qwen3_next_dense_layer",
     renamed(qwen3_next(mlp_only_layers=[1], norm_topk_prob=False, linear_num_value_heads=4, num_hidden_layers=5,
                        layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention",
                                     "full_attention"])),
     {"norm_topk_prob": True})

case("olmoe", olmoe(), {"norm_topk_prob": True})
case("olmoe_bias", renamed(olmoe(norm_topk_prob=True, attention_bias=True, num_key_value_heads=1)),
     {"norm_topk_prob": False})
case("gpt_oss", gpt_oss(), {"swiglu_limit": 7.0})
# As published files have them, but for sizes: no types of layers, a limit of 7.
case("gpt_oss_yarn",
     renamed(gpt_oss(layer_types=None, num_experts_per_tok=2, swiglu_limit=7.0, num_hidden_layers=4,
                     num_key_value_heads=1)),
     {"rope_parameters": gpt_oss()["rope_scaling"] | {"rope_theta": 50.0, "truncate": True}})
case("gpt_oss_two_chunks", gpt_oss(sliding_window=40, attention_bias=False), {"sliding_window": 41}, n_tokens=300)
# Experts in MXFP4 (make.py: mxfp4_bytes).
case("gpt_oss_mxfp4",
     gpt_oss(hidden_size=64, intermediate_size=96, num_experts_per_tok=2, swiglu_limit=7.0,
             quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}),
     {"swiglu_limit": 0.1})

# Cases whose logits are also made with a q8 KV cache: query groups, norms of heads, a softcap with a window, two chunks,
# sinks.
Q8_CASES = ("llama_gqa", "qwen3", "gemma2", "llama_two_chunks", "gpt_oss_two_chunks")

# Cases whose text is also continued greedily, from 24 tokens to 88. Frequencies must not change on the way: the texts of
# phi3_partial_rotary and phi3_longrope_long are longer than the original context from the start, those of
# phi3_partial_rotary_short never are.
# Models with tied embeddings repeat a token or two, so families that have others are represented by those.
GREEDY_CASES = ("llama_gqa", "mistral_window", "qwen3", "phi3_plain", "phi3_partial_rotary", "phi3_longrope_long",
                "phi3_partial_rotary_short", "gemma2", "gemma3", "ministral3", "muse_glimmer_scale", "smollm3",
                "smollm3_list", "granite", "granite_bias", "gemma4", "gemma4_untied", "gemma4_values",
                "gemma4_unified", "gemma4_moe", "gemma4_moe_all", "qwen3_moe", "mixtral", "glm4_moe", "gpt_oss",
                "gpt_oss_yarn", "olmoe", "qwen35", "qwen35_interval", "qwen35_moe", "qwen3_next")
