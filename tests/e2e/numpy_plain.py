"""Decoders with an ungated FFN in NumPy, for make_families.py."""
from numpy_model import VOCAB, Model, gelu, np, stems


def plain_network(m, x, s, act, bias):
    return m.linear(act(m.linear(x, s + "ffn_up", m.ffn, bias=bias)), s + "ffn_down", m.width, bias=bias)


def gptneox(ids, parallel=True):
    m = Model("gptneox", layer_norm=True, rotary=4, kv_heads=4)
    m.key("use_parallel_residual", parallel)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s, bias=True, fused=True)
        a = m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width, bias=True)
        n = m.norm(x if parallel else x + a, s + "ffn_norm", bias=True)
        x = x + a + plain_network(m, n, s, gelu, bias=True)
    return m, m.head(x, tied=False, bias=True)


def gptneox_serial(ids):
    return gptneox(ids, parallel=False)


def phi2(ids):
    m = Model("phi2", layer_norm=True, rotary=8, kv_heads=4)
    x = m.embed(ids)
    for s in stems(m):
        n = m.norm(x, s + "attn_norm", bias=True)
        q, k, v = m.qkv(n, s, bias=True, fused=True)
        a = m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width, bias=True)
        x = x + a + plain_network(m, n, s, gelu, bias=True)
    x = m.norm(x, "output_norm", bias=True)
    return m, m.linear(x, "output", VOCAB, bias=True)


def falcon(ids, norms=1):
    """With two norms attention and FFN have separate ones."""
    m = Model("falcon", layer_norm=True, kv_heads=1 if norms == 1 else 2)
    x = m.embed(ids)
    for s in stems(m):
        n = m.norm(x, s + "attn_norm", bias=True)
        q, k, v = m.qkv(m.norm(x, s + "attn_norm_2", bias=True) if norms == 2 else n, s, fused=True)
        a = m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + a + plain_network(m, n, s, gelu, bias=False)
    return m, m.head(x, bias=True)


def falcon_40b(ids):
    return falcon(ids, norms=2)


def relu_squared(x):
    return np.maximum(x, 0) ** 2


def nemotron(ids, family="nemotron"):
    arcee = family == "arcee"
    m = Model(family, layer_norm=not arcee, rotary=32 if arcee else 8, head_dim=32 if arcee else 16)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=not arcee), s)
        x = x + m.linear(m.attend(m.rope(q, not arcee), m.rope(k, not arcee), v), s + "attn_output", m.width)
        x = x + plain_network(m, m.norm(x, s + "ffn_norm", bias=not arcee), s, relu_squared, bias=False)
    return m, m.head(x, tied=False, bias=not arcee)


def arcee(ids):
    return nemotron(ids, "arcee")
