"""MoE decoders with dense first layers and shared experts in NumPy, for make_families.py."""
from numpy_latent import grouped_experts
from numpy_model import Model, silu, stems, swiglu


def head_norm(m, x, stem):
    return m.normal(x, m.tensor(stem + ".weight", m.head_dim, mean=1.0, spread=0.4))


def row_norm(m, x, stem):
    rows = x.reshape(len(x), -1)
    return m.normal(rows, m.tensor(stem + ".weight", rows.shape[1], mean=1.0, spread=0.4)).reshape(x.shape)


def shared_network(m, x, s, hidden):
    h = swiglu(m.linear(x, s + "ffn_gate_shexp", hidden), m.linear(x, s + "ffn_up_shexp", hidden))
    return m.linear(h, s + "ffn_down_shexp", m.width)


def decoder(ids, m, halves, router, norm=None, bias=False, fused=False, ffn_norm="ffn_norm", dense=1, shared=48, tied=False):
    """`router`: the arguments sigmoid, groups, groups_used, norm, scale, biased of grouped_experts."""
    count, used, hidden = 8, 3, 32
    m.keys.update({"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": hidden})
    if dense:
        m.keys["leading_dense_block_count"] = dense
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=bias, fused=fused)
        if norm:
            q, k = norm(m, q, s + "attn_q_norm"), norm(m, k, s + "attn_k_norm")
        x = x + m.linear(m.attend(m.rope(q, halves), m.rope(k, halves), v), s + "attn_output", m.width)
        n = m.norm(x, s + ffn_norm)
        if i < dense:
            x = x + m.ffn_gated(n, s, silu)
        else:
            x = x + grouped_experts(m, n, s, count, used, hidden, **router)
            x = x + (shared_network(m, n, s, shared) if shared else 0)
    return m, m.head(x, tied)


def deepseek(ids):
    m = Model("deepseek", layers=3, kv_heads=4, layers_differ=True)
    m.key("expert_weights_scale", 1.0)
    return decoder(ids, m, False, dict(sigmoid=False, groups=1, groups_used=1, norm=False, scale=1.0))


def dots1(ids):
    m = Model("dots1", layers=3, kv_heads=4, head_dim=32, layers_differ=True)
    m.keys.update({"expert_gating_func": 2, "expert_weights_norm": True})
    scale = m.key("expert_weights_scale", 2.5)
    return decoder(ids, m, True, dict(sigmoid=True, groups=1, groups_used=1, norm=True, scale=scale), norm=head_norm)


def bailingmoe2(ids):
    m = Model("bailingmoe2", layers=3, rotary=8, layers_differ=True)
    m.keys.update({"expert_gating_func": 2, "expert_weights_norm": True, "expert_group_count": 4, "expert_group_used_count": 2})
    scale = m.key("expert_weights_scale", 2.5)
    return decoder(ids, m, True, dict(sigmoid=True, groups=4, groups_used=2, norm=True, scale=scale), norm=head_norm, fused=True)


def glm4moe(ids, norm=head_norm):
    m = Model("glm4moe", layers=3, rotary=8, layers_differ=True)
    m.keys.update({"expert_gating_func": 2, "expert_weights_norm": True})
    scale = m.key("expert_weights_scale", 1.5)
    return decoder(ids, m, True, dict(sigmoid=True, groups=1, groups_used=1, norm=True, scale=scale), norm=norm, bias=True,
                   ffn_norm="post_attention_norm")


def glm4moe_air(ids):
    """GLM-4.5-Air: no QK-norm, router weights not normalised, and M-RoPE sections, whose positions are equal for text."""
    m = Model("glm4moe", layers=3, rotary=8, layers_differ=True)
    m.keys["rope.dimension_sections"] = [2, 1, 1, 0]
    return decoder(ids, m, True, dict(sigmoid=True, groups=1, groups_used=1, norm=False, scale=1.0), bias=True,
                   ffn_norm="post_attention_norm")


def ernie4_5_moe(ids):
    """The router's bias is added to the softmax."""
    m = Model("ernie4_5-moe", layers=3, layers_differ=True)
    m.key("interleave_moe_layer_step", 1)
    return decoder(ids, m, False, dict(sigmoid=False, groups=1, groups_used=1, norm=True, scale=1.0, biased=True), tied=True)


def minimax_m2(ids):
    m = Model("minimax-m2", rotary=8, head_dim=32)
    m.key("expert_gating_func", 2)
    return decoder(ids, m, True, dict(sigmoid=True, groups=1, groups_used=1, norm=True, scale=1.0), norm=row_norm, dense=0, shared=0)


def hunyuan(ids, experts=False):
    """QK-norm is applied after RoPE."""
    m = Model("hunyuan-moe" if experts else "hunyuan-dense", head_dim=32)
    if experts:
        m.keys.update({"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32})
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q, k = head_norm(m, m.rope(q, True), s + "attn_q_norm"), head_norm(m, m.rope(k, True), s + "attn_k_norm")
        x = x + m.linear(m.attend(q, k, v), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        if experts:
            x = x + m.experts(n, s, 6, 2, 32, over_chosen=True) + shared_network(m, n, s, 40)
        else:
            x = x + m.ffn_gated(n, s, silu)
    return m, m.head(x)


def hunyuan_dense(ids):
    return hunyuan(ids)


def hunyuan_moe(ids):
    return hunyuan(ids, experts=True)
