"""Encoders without reference data, in NumPy, for make_families.py: hidden rows instead of logits. Sources: arXiv 2509.20354 and
2310.19923, and the published models' code."""
from numpy_model import Model, gelu, np, stems, stored
from numpy_positions import slopes


def attend_both_ways(m, q, k, v, reach=None, max_bias=None):
    """Attention without a mask, or to tokens at most `reach` away on both sides. `max_bias`: ALiBi's."""
    k, v = stored(k), stored(v)
    out = np.zeros_like(q)
    distance = np.abs(np.arange(len(q))[:, None] - np.arange(len(q)))
    for h in range(m.heads):
        g = h * m.kv_heads // m.heads
        scores = q[:, h] @ k[:, g].T * m.head_dim ** -0.5
        if max_bias is not None:
            scores = scores - slopes(m.heads, max_bias)[h] * distance
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


def jina_bert(ids, family="jina-bert-v2", code=False):
    """BERT with ALiBi, and GEGLU in place of the FFN. The models for code have norms of q and k, over all heads, and a second norm
    after attention; here they have gate and up in one tensor too."""
    m = Model(family, layer_norm=True, kv_heads=4)
    m.keys.update({"attention.causal": False, "pooling_type": 1})
    heads = m.heads * m.head_dim
    types = m.tensor("token_types.weight", 2, m.width, spread=0.5)
    x = m.norm(m.embed(ids) + types[0], "token_embd_norm", bias=True)
    for s in stems(m):
        q, k, v = m.qkv(x, s, bias=True)
        if code:
            q, k = (m.normal(r.reshape(len(x), -1), m.tensor(f"{s}attn_{n}_norm.weight", heads, mean=1.0, spread=0.4),
                             m.tensor(f"{s}attn_{n}_norm.bias", heads, spread=0.5)).reshape(r.shape)
                    for n, r in (("q", q), ("k", k)))
        a = m.linear(attend_both_ways(m, q, k, v, max_bias=8.0), s + "attn_output", m.width, bias=True)
        y = m.norm(x + a, s + "attn_output_norm", bias=True)
        if code:
            y = m.norm(x + y, s + "attn_norm_2", bias=True)
            gate, up = np.split(m.linear(y, s + "ffn_up", 2 * m.ffn), 2, axis=-1)
        else:
            gate, up = m.linear(y, s + "ffn_gate", m.ffn), m.linear(y, s + "ffn_up", m.ffn)
        x = m.norm(y + m.linear(gelu(gate) * up, s + "ffn_down", m.width, bias=True), s + "layer_output_norm", bias=True)
    return m, x


def jina_bert_code(ids):
    return jina_bert(ids, code=True)
