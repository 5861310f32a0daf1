"""Encoders without reference data, in NumPy, for make_families.py: hidden rows instead of logits. Sources: arXiv 2509.20354, and the
published model's code."""
from numpy_model import Model, gelu, np, stems, stored


def attend_both_ways(m, q, k, v, reach=None):
    """Attention without a mask, or to tokens at most `reach` away on both sides."""
    k, v = stored(k), stored(v)
    out = np.zeros_like(q)
    distance = np.abs(np.arange(len(q))[:, None] - np.arange(len(q)))
    for h in range(m.heads):
        g = h * m.kv_heads // m.heads
        scores = q[:, h] @ k[:, g].T * m.head_dim ** -0.5
        if reach is not None:
            scores = np.where(distance <= reach, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
    return out.reshape(len(q), -1)


def gemma_embedding(ids):
    """Gemma 3's layers, with half of the window on each side; two projections at the end."""
    m = Model("gemma-embedding", layers=7, kv_heads=1, base=1e6)
    m.keys.update({"attention.causal": False, "pooling_type": 1})
    window = m.key("attention.sliding_window", 7)
    x = m.embed(ids) * m.width ** 0.5
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        local = i % 6 != 5
        base = 10000.0 if local else m.base
        a = attend_both_ways(m, m.rope(q, True, base=base), m.rope(k, True, base=base), v, window // 2 if local else None)
        x = x + m.norm(m.linear(a, s + "attn_output", m.width), s + "post_attention_norm")
        x = x + m.norm(m.ffn_gated(m.norm(x, s + "ffn_norm"), s, gelu), s + "post_ffw_norm")
    wide = m.key("dense_2_feat_out", 80)
    return m, m.linear(m.linear(m.norm(x, "output_norm"), "dense_2", wide), "dense_3", m.width)
