"""Older decoders without reference data, in NumPy, for make_families.py: GPT-J, Qwen 1, OLMo 1, Jais. Sources: the published models'
code and arXiv 2309.16609, 2402.00838, 2308.16149."""
from numpy_model import VOCAB, Model, gelu, np, silu, stems
from numpy_plain import plain_network
from numpy_positions import attend_alibi


def gptj(ids):
    """Attention and FFN read the same norm. Biases in the FFN and the head only; RoPE turns neighbours."""
    m = Model("gptj", layer_norm=True, rotary=8, kv_heads=4)
    x = m.embed(ids)
    for s in stems(m):
        n = m.norm(x, s + "attn_norm", bias=True)
        q, k, v = m.qkv(n, s)
        a = m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width)
        x = x + a + plain_network(m, n, s, gelu, bias=True)
    return m, m.linear(m.norm(x, "output_norm", bias=True), "output", VOCAB, bias=True)


def qwen(ids):
    """The file states twice the width of the FFN's parts."""
    m = Model("qwen", kv_heads=4)
    m.keys["feed_forward_length"] = 2 * m.ffn
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s, bias=True, fused=True)
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x, tied=False)


def olmo(ids, limit=0.0):
    """LayerNorm without weight and bias."""
    m = Model("olmo", layer_norm=True, kv_heads=4)
    if limit:
        m.key("attention.clamp_kqv", limit)
    unit = lambda x: m.normal(x, 1.0)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = (np.clip(p, -limit, limit) if limit else p for p in m.qkv(unit(x), s))
        x = x + m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(unit(x), s, silu)
    return m, unit(x) @ m.tensor("token_embd.weight", VOCAB, m.width).T


def olmo_clamped(ids):
    return olmo(ids, limit=1.5)


def jais(ids):
    """ALiBi; muP divides scores by head_dim instead of its root. Its other scales are in the weights."""
    m = Model("jais", layer_norm=True, heads=6, kv_heads=6, head_dim=8)
    bias = m.key("attention.max_alibi_bias", 8.0)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s, bias=True, fused=True)
        q = q * m.head_dim ** -0.5
        x = x + m.linear(attend_alibi(m, q, k, v, bias), s + "attn_output", m.width, bias=True)
        n = m.norm(x, s + "ffn_norm", bias=True)
        h = silu(m.linear(n, s + "ffn_gate", m.ffn, bias=True)) * m.linear(n, s + "ffn_up", m.ffn, bias=True)
        x = x + m.linear(h, s + "ffn_down", m.width, bias=True)
    return m, m.head(x, tied=False, bias=True)
