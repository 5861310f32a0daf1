#!/usr/bin/env python3
"""Writes families.json: small random models of every family and their logits, computed by NumPy in double precision.

usage: make_families.py            writes families.json beside this file
       make_families.py --check    exit 1 if the file differs from a new one by more than rounding of logits; 77 without NumPy

families_test.cc builds the same models by the same recipe and compares forge's logits with these. The models here are
written from the papers and the GGUF conventions (names of keys and tensors, order of rows), independently of forge, so an
error would have to be made twice to stay unnoticed. Weights are not stored: element i of a tensor is a hash of the tensor's
name and i, which C++ computes in the same way.
"""
import json
import os
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source folder
from numpy_model import VOCAB, Cache, Model, gelu, np, silu, stems, swiglu
from numpy_encoders import gemma_embedding, jina_bert, jina_bert_code
from numpy_gemma import gemma3n, gemma4, gemma4_moe
from numpy_indexed import deepseek32, glm_dsa, minimax_m3
from numpy_latent import deepseek2, yarn
from numpy_llama import bitnet, ernie4_5, exaone, exaone4, exaone4_global, internlm2, mistral3, xverse
from numpy_positions import apertus, baichuan, baichuan_13b, bloom, gpt2, mpt, starcoder
from numpy_older import gptj, jais, olmo, olmo_clamped, qwen
from numpy_plain import arcee, falcon, falcon_40b, gptneox, gptneox_serial, nemotron, phi2
from numpy_sparse import bailingmoe2, deepseek, dots1, ernie4_5_moe, glm4moe, glm4moe_air, hunyuan_dense, hunyuan_moe, minimax_m2
from numpy_states import falcon_mamba, plamo2
from numpy_windows import (afmoe, arctic, cohere2moe, cohere2moe_rms, dbrx, deci, exaone_moe, grovemoe, llama4, llama4_maverick, phimoe,
                           smallthinker, smallthinker_global, step35)

TOKENS, KEPT_ROWS = 14, [3, 9, 13]
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "families.json")


# ---- families ----

def pangu_embedded(ids):
    return qwen2(ids, "pangu-embedded", output_bias=True)


def with_sections(made):
    """M-RoPE: time, row and column positions each rotate a section of a head. For text all three are equal, as here."""
    made[0].keys["rope.dimension_sections"] = [4, 2, 2, 0]
    return made


def qwen2vl(ids):
    return with_sections(qwen2(ids, "qwen2vl"))


def qwen3vl(ids):
    return with_sections(qwen3(ids, "qwen3vl"))


def qwen3vlmoe(ids):
    return with_sections(qwen3moe(ids, "qwen3vlmoe"))


def qwen2(ids, family="qwen2", output_bias=False):
    m = Model(family, base=1e6)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width, output_bias)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x, tied=False)


def qwen3(ids, family="qwen3"):
    m = Model(family, base=1e6, head_dim=32)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x)


def seed_oss(ids):
    m = Model("seed_oss", base=1e7, head_dim=32)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "post_attention_norm"), s, silu)
    return m, m.head(x, tied=False)


def granite(ids, turns=True):
    m = Model("granite", ffn=40)
    if not turns:
        m.key("rope.scaling.finetuned", False)
    embedding, residual = m.key("embedding_scale", 3.0), m.key("residual_scale", 0.4)
    scale, logits = m.key("attention.scale", 0.11), m.key("logit_scale", 4.0)
    x = m.embed(ids) * embedding
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        if turns:
            q, k = m.rope(q, False), m.rope(k, False)
        x = x + residual * m.linear(m.attend(q, k, v, scale), s + "attn_output", m.width)
        x = x + residual * m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x) / logits


def minicpm(ids):
    """Without keys for them the scales are the published ones: 12, 1.4 / sqrt(layers), width / 256."""
    m = Model("minicpm", layers=3)
    residual = 1.4 / m.layers ** 0.5
    x = m.embed(ids) * 12
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        x = x + residual * m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width)
        x = x + residual * m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x) / (m.width / 256)


def granite_nope(ids):
    return granite(ids, turns=False)


def olmo2(ids, windows=False):
    """With windows: OLMo 3, where three of four layers have a sliding window and unscaled RoPE, and the others use YaRN."""
    m = Model("olmo2", kv_heads=4, layers=5 if windows else 2)
    window, turn = 0, {}
    if windows:
        window, factor, original = m.key("attention.sliding_window", 4), m.key("rope.scaling.factor", 4.0), m.key("rope.scaling.original_context_length", 16)
        m.key("rope.scaling.type", "yarn")
        turn = dict(factors=yarn(m, factor, original), magnitude=1 + 0.1 * np.log(factor))
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        local = windows and i % 4 != 3
        q, k, v = m.qkv(x, s)
        full = m.heads * m.head_dim
        q = m.normal(q.reshape(len(x), -1), m.tensor(s + "attn_q_norm.weight", full, mean=1.0, spread=0.4)).reshape(q.shape)
        k = m.normal(k.reshape(len(x), -1), m.tensor(s + "attn_k_norm.weight", full, mean=1.0, spread=0.4)).reshape(k.shape)
        how = {} if local else turn
        a = m.attend(m.rope(q, True, **how), m.rope(k, True, **how), v, window=window if local else 0)
        x = x + m.norm(m.linear(a, s + "attn_output", m.width), s + "post_attention_norm")
        x = x + m.norm(m.ffn_gated(x, s, silu), s + "post_ffw_norm")
    return m, m.head(x, tied=False)


def olmo3(ids):
    return olmo2(ids, windows=True)


def phi3(ids, context=64):
    """LongRoPE: the long factors are used if the context exceeds the original one."""
    m = Model("phi3", kv_heads=2, rotary=12, context=context)
    window = m.key("attention.sliding_window", 5)
    original, magnitude = m.key("rope.scaling.original_context_length", 64), m.key("rope.scaling.attn_factor", 1.25)
    factors = {n: m.tensor(f"rope_factors_{n}.weight", m.rotary // 2, mean=mean, spread=0.5) for n, mean in (("long", 4.0), ("short", 1.5))}
    turn = dict(halves=True, factors=factors["long" if context > original else "short"], magnitude=magnitude)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, fused=True)
        x = x + m.linear(m.attend(m.rope(q, **turn), m.rope(k, **turn), v, window=window), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu, fused=True)
    return m, m.head(x, tied=False)


def phi3_long(ids):
    return phi3(ids, context=128)


def gemma(ids):
    m = Model("gemma", kv_heads=1)
    x = m.embed(ids) * m.width ** 0.5
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, gelu)
    return m, m.head(x)


def gemma2(ids):
    m = Model("gemma2", layers=3)
    window, scores, logits = m.key("attention.sliding_window", 4), m.key("attn_logit_softcapping", 2.0), m.key("final_logit_softcapping", 3.0)
    x = m.embed(ids) * m.width ** 0.5
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        a = m.attend(m.rope(q, True), m.rope(k, True), v, window=window if i % 2 == 0 else 0, softcap=scores)
        x = x + m.norm(m.linear(a, s + "attn_output", m.width), s + "post_attention_norm")
        x = x + m.norm(m.ffn_gated(m.norm(x, s + "ffn_norm"), s, gelu), s + "post_ffw_norm")
    return m, logits * np.tanh(m.head(x) / logits)


def gemma3(ids, windows=True):
    """Without windows all layers have global attention."""
    m = Model("gemma3", layers=7, kv_heads=1, base=1e6)
    window, factor = m.key("attention.sliding_window", 4) if windows else 0, m.key("rope.scaling.factor", 8.0)
    m.key("rope.scaling.type", "linear")
    x = m.embed(ids) * m.width ** 0.5
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        local = windows and i % 6 != 5
        turn = dict(halves=True, base=10000.0 if local else m.base, scale=1.0 if local else factor)
        a = m.attend(m.rope(q, **turn), m.rope(k, **turn), v, window=window if local else 0)
        x = x + m.norm(m.linear(a, s + "attn_output", m.width), s + "post_attention_norm")
        x = x + m.norm(m.ffn_gated(m.norm(x, s + "ffn_norm"), s, gelu), s + "post_ffw_norm")
    return m, m.head(x)


def gemma3_global(ids):
    return gemma3(ids, windows=False)


def smollm3(ids):
    m = Model("smollm3", layers=5)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        if i % 4 != 3:
            q, k = m.rope(q, False), m.rope(k, False)
        x = x + m.linear(m.attend(q, k, v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x)


def command_r(ids, qk_norm=False):
    m = Model("command-r", layer_norm=True)
    scale = m.key("logit_scale", 0.3)
    x = m.embed(ids)
    for s in stems(m):
        normed = m.norm(x, s + "attn_norm")
        q, k, v = m.qkv(normed, s)
        if qk_norm:
            q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.heads, m.head_dim, mean=1.0, spread=0.4))
            k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.kv_heads, m.head_dim, mean=1.0, spread=0.4))
        x = x + m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width) + m.ffn_gated(normed, s, silu)
    return m, m.head(x) * scale


def command_r_plus(ids):
    return command_r(ids, qk_norm=True)


def cohere2(ids):
    m = Model("cohere2", layer_norm=True, layers=5)
    scale, window = m.key("logit_scale", 0.3), m.key("attention.sliding_window", 4)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        normed = m.norm(x, s + "attn_norm")
        q, k, v = m.qkv(normed, s)
        local = i % 4 != 3
        if local:
            q, k = m.rope(q, False), m.rope(k, False)
        x = x + m.linear(m.attend(q, k, v, window=window if local else 0), s + "attn_output", m.width) + m.ffn_gated(normed, s, silu)
    return m, m.head(x) * scale


def stablelm(ids, parallel=False):
    m = Model("stablelm", layer_norm=True, rotary=8, kv_heads=4)
    x = m.embed(ids)
    for s in stems(m):
        normed = m.norm(x, s + "attn_norm", bias=True)
        q, k, v = m.qkv(normed, s, bias=not parallel)
        if parallel:
            q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.heads, m.head_dim, mean=1.0, spread=0.4))
            k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.kv_heads, m.head_dim, mean=1.0, spread=0.4))
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(normed if parallel else m.norm(x, s + "ffn_norm", bias=True), s, silu)
    return m, m.head(x, tied=False, bias=True)


def orion(ids):
    m = Model("orion", layer_norm=True, kv_heads=4)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm", bias=True), s, silu)
    return m, m.head(x, tied=False, bias=True)


def stablelm2_12b(ids):
    return stablelm(ids, parallel=True)


def starcoder2(ids):
    m = Model("starcoder2", layer_norm=True)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s, bias=True)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width, bias=True)
        h = gelu(m.linear(m.norm(x, s + "ffn_norm", bias=True), s + "ffn_up", m.ffn, bias=True))
        x = x + m.linear(h, s + "ffn_down", m.width, bias=True)
    return m, m.head(x, bias=True)


def glm4(ids, sections=False):
    """With sections (M-RoPE) RoPE rotates halves. For text the positions of all sections are equal."""
    m = Model("glm4", rotary=8)
    if sections:
        m.keys["rope.dimension_sections"] = [2, 1, 1, 0]
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True)
        a = m.linear(m.attend(m.rope(q, sections), m.rope(k, sections), v), s + "attn_output", m.width)
        x = x + m.norm(a, s + "post_attention_norm")
        x = x + m.norm(m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu, fused=True), s + "post_ffw_norm")
    return m, m.head(x, tied=False)


def glm4_mrope(ids):
    return glm4(ids, sections=True)


def chatglm(ids):
    m = Model("chatglm", rotary=8)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True, fused=True)
        x = x + m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu, fused=True)
    return m, m.head(x, tied=False)


def qwen3moe(ids, family="qwen3moe", scaled=False):
    m = Model(family, base=1e6, head_dim=32)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.experts(m.norm(x, s + "ffn_norm"), s, 6, 3, 32, over_chosen=True, scaled=scaled)
    return m, m.head(x)


def qwen3moe_scaled(ids):
    """As NVFP4 files have them, whose blocks' scales are relative to a factor for each expert."""
    return qwen3moe(ids, scaled=True)


def qwen2moe(ids):
    m = Model("qwen2moe", base=1e6)
    shared = m.key("expert_shared_feed_forward_length", 40)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        h = swiglu(m.linear(n, s + "ffn_gate_shexp", shared), m.linear(n, s + "ffn_up_shexp", shared))
        gate = 1 / (1 + np.exp(-n @ m.tensor(s + "ffn_gate_inp_shexp.weight", m.width)))
        x = x + m.experts(n, s, 5, 2, 32, over_chosen=False) + gate[:, None] * m.linear(h, s + "ffn_down_shexp", m.width)
    return m, m.head(x, tied=False)


def olmoe(ids):
    m = Model("olmoe", kv_heads=4)
    full = m.heads * m.head_dim
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q = m.normal(q.reshape(len(x), -1), m.tensor(s + "attn_q_norm.weight", full, mean=1.0, spread=0.4)).reshape(q.shape)
        k = m.normal(k.reshape(len(x), -1), m.tensor(s + "attn_k_norm.weight", full, mean=1.0, spread=0.4)).reshape(k.shape)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.experts(m.norm(x, s + "ffn_norm"), s, 6, 2, 32, over_chosen=False)
    return m, m.head(x, tied=False)


def granitemoe(ids, shared=0):
    m = Model("granitemoe")
    embedding, residual = m.key("embedding_scale", 3.0), m.key("residual_scale", 0.4)
    scale, logits = m.key("attention.scale", 0.11), m.key("logit_scale", 4.0)
    if shared:
        m.key("expert_shared_feed_forward_length", shared)
    x = m.embed(ids) * embedding
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        x = x + residual * m.linear(m.attend(m.rope(q, False), m.rope(k, False), v, scale), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        out = m.experts(n, s, 5, 2, 32, over_chosen=True)
        if shared:
            h = swiglu(m.linear(n, s + "ffn_gate_shexp", shared), m.linear(n, s + "ffn_up_shexp", shared))
            out = out + m.linear(h, s + "ffn_down_shexp", m.width)
        x = x + residual * out
    return m, m.head(x) / logits


def granitemoe_shared(ids):
    return granitemoe(ids, shared=24)


def clamped_swiglu(gate, up):
    gate = np.minimum(gate, 7.0)
    return gate / (1 + np.exp(-1.702 * gate)) * (np.clip(up, -7.0, 7.0) + 1)


def gpt_oss(ids):
    m = Model("gpt-oss", base=150000.0, layers=3)
    window = m.key("attention.sliding_window", 4)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True)
        a = m.attend(m.rope(q, True), m.rope(k, True), v, window=window if i % 2 == 0 else 0,
                     sinks=m.tensor(s + "attn_sinks.weight", m.heads, spread=2.0))
        x = x + m.linear(a, s + "attn_output", m.width, bias=True)
        n = m.norm(x, s + "post_attention_norm")
        x = x + m.experts(n, s, 5, 2, 32, over_chosen=True, act=clamped_swiglu, bias=True, gain=2.0)
    return m, m.head(x, tied=False)


def deepseek_v2_lite(ids):
    return deepseek2(ids, q_rank=0, kv_b=True, sigmoid=False, groups=1, groups_used=1, norm=False, scale=1.0)


def deepseek_v2(ids):
    return deepseek2(ids, q_rank=20, kv_b=False, sigmoid=False, groups=4, groups_used=2, norm=False, scale=4.0)


def deepseek_v3(ids):
    return deepseek2(ids, q_rank=20, kv_b=False, sigmoid=True, groups=4, groups_used=2, norm=True, scale=2.5)


def mistral4(ids):
    return deepseek2(ids, q_rank=20, kv_b=False, sigmoid=True, groups=1, groups_used=1, norm=True, scale=2.5, family="mistral4", temperature=(0.4, 5))


MODELS = (afmoe, apertus, arcee, arctic, baichuan, baichuan_13b, bailingmoe2, bitnet, bloom, chatglm, cohere2,
          cohere2moe, cohere2moe_rms, command_r, command_r_plus, dbrx, deci, deepseek, deepseek_v2, deepseek_v2_lite,
          deepseek_v3, deepseek32, dots1, ernie4_5, ernie4_5_moe, exaone, exaone4, exaone4_global, exaone_moe, falcon, falcon_40b, falcon_mamba,
          gemma, gemma2, gemma3, gemma3_global, gemma3n, gemma4, gemma4_moe, glm4, glm_dsa, glm4_mrope, glm4moe, glm4moe_air,
          gpt2, gpt_oss, gptj, gptneox, gptneox_serial, granite, granite_nope, granitemoe, granitemoe_shared, grovemoe,
          hunyuan_dense, hunyuan_moe, internlm2, jais, llama4, llama4_maverick, minicpm, minimax_m2, minimax_m3, mistral3, mistral4,
          mpt, nemotron, olmo, olmo_clamped, olmo2, olmo3, olmoe, orion, pangu_embedded, phi2, phi3, phi3_long, phimoe, plamo2, qwen, qwen2, qwen2moe,
          qwen2vl, qwen3, qwen3moe, qwen3moe_scaled, qwen3vl, qwen3vlmoe, seed_oss, smallthinker, smallthinker_global, smollm3,
          stablelm, stablelm2_12b, starcoder, starcoder2, step35, xverse)

ENCODERS = (gemma_embedding, jina_bert, jina_bert_code)


def kept(logits):
    return [[float(f"{v:.6g}") for v in logits[row]] for row in KEPT_ROWS]


def fixture():
    """The contents of families.json. A tensor is [shape (slowest first), mean, spread]; "blk.*" stands for every layer.
    "cached" are the logits with keys and values rounded to f16. Encoders have hidden rows instead of logits."""
    ids = ((np.arange(TOKENS) * 7 + 3) % VOCAB).tolist()
    return {"tokens": ids, "rows": KEPT_ROWS, "models": computed(MODELS, ids), "encoders": computed(ENCODERS, ids)}


def computed(builders, ids):
    models = []
    for build in builders:
        Cache.half = True
        cached = build(ids)[1]
        Cache.half = False
        model, logits = build(ids)
        models.append({"name": build.__name__, "family": model.family, "keys": model.keys, "tensors": model.tensors,
                       "logits": kept(logits), "cached": kept(cached)})
    return models


def same(a, b):
    """True if both fixtures are equal. Logits may differ by rounding, because the BLAS library decides the order of sums."""
    for x, y in zip(a["models"] + a["encoders"], b["models"] + b["encoders"]):
        if any(not np.allclose(x.pop(name), y.pop(name), rtol=1e-5, atol=1e-5) for name in ("logits", "cached")):
            return False
    return a == b


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        ok = same(json.load(open(PATH)), fixture())
        print(f"{int(ok)} passed, {int(not ok)} failed")
        sys.exit(not ok)
    made = fixture()
    lists = {name: ",\n".join(json.dumps(model, separators=(",", ":")) for model in made.pop(name)) for name in ("models", "encoders")}
    with open(PATH, "w") as out:
        out.write(json.dumps(made)[:-1] + "".join(f', "{name}": [\n{lines}\n]' for name, lines in lists.items()) + "}\n")
