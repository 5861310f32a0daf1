"""Decoders with learned positions or ALiBi, and Apertus, in NumPy, for make_families.py. Sources: arXiv 2108.12409,
2411.13010, and the papers that the families' files name."""
from numpy_model import Model, gelu, np, silu, stems, stored
from numpy_plain import plain_network


def slopes(heads, max_bias):
    """ALiBi's slope of each head: powers of 2^(-max_bias / n) for the largest power of two n up to `heads`, then the odd
    powers of its root."""
    n = 2 ** int(np.log2(heads))
    return [2 ** (-max_bias * (h + 1) / n) if h < n else 2 ** (-max_bias / 2 * (2 * (h - n) + 1) / n) for h in range(heads)]


def attend_alibi(m, q, k, v, max_bias):
    """Model.attend with a bias that grows with the distance."""
    k, v = stored(k), stored(v)
    out = np.zeros_like(q)
    for t in range(len(q)):
        for h, slope in enumerate(slopes(m.heads, max_bias)):
            g = h * m.kv_heads // m.heads
            s = k[:t + 1, g] @ q[t, h] * m.head_dim ** -0.5 - slope * (t - np.arange(t + 1))
            p = np.exp(s - s.max())
            out[t, h] = p / p.sum() @ v[:t + 1, g]
    return out.reshape(len(q), -1)


def gpt2(ids, family="gpt2", kv_heads=4):
    m = Model(family, layer_norm=True, kv_heads=kv_heads)
    x = m.embed(ids) + m.tensor("position_embd.weight", m.context, m.width, spread=1.0)[:len(ids)]
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s, bias=True, fused=True)
        x = x + m.linear(m.attend(q, k, v), s + "attn_output", m.width, bias=True)
        x = x + plain_network(m, m.norm(x, s + "ffn_norm", bias=True), s, gelu, bias=True)
    return m, m.head(x, bias=True)


def starcoder(ids):
    return gpt2(ids, family="starcoder", kv_heads=1)


def bloom(ids):
    """Six heads, so that the slopes are not all powers of one number."""
    m = Model("bloom", layer_norm=True, heads=6, kv_heads=6, head_dim=8)
    x = m.norm(m.embed(ids), "token_embd_norm", bias=True)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s, bias=True, fused=True)
        x = x + m.linear(attend_alibi(m, q, k, v, 8.0), s + "attn_output", m.width, bias=True)
        x = x + plain_network(m, m.norm(x, s + "ffn_norm", bias=True), s, gelu, bias=True)
    return m, m.head(x, bias=True)


def mpt(ids):
    m = Model("mpt", layer_norm=True, kv_heads=4)
    bias, limit = m.key("attention.max_alibi_bias", 4.0), m.key("attention.clamp_kqv", 1.5)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = (np.clip(p, -limit, limit) for p in m.qkv(m.norm(x, s + "attn_norm"), s, fused=True))
        x = x + m.linear(attend_alibi(m, q, k, v, bias), s + "attn_output", m.width)
        x = x + plain_network(m, m.norm(x, s + "ffn_norm"), s, gelu, bias=False)
    return m, m.head(x)


def baichuan(ids, layers=2):
    """With 40 layers it is the 13B model, which has ALiBi instead of RoPE."""
    m = Model("baichuan", kv_heads=4, layers=layers, width=48 if layers == 2 else 32, ffn=64 if layers == 2 else 32,
              head_dim=16 if layers == 2 else 8)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        heads = m.attend(m.rope(q, False), m.rope(k, False), v) if layers == 2 else attend_alibi(m, q, k, v, 8.0)
        x = x + m.linear(heads, s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x, tied=False)


def baichuan_13b(ids):
    return baichuan(ids, layers=40)


def apertus(ids):
    m = Model("apertus")
    softplus = lambda a: np.log1p(np.exp(np.float64(np.float32(a))))
    trained = {"alpha_n": [1.5, -0.25], "alpha_p": [0.75, -0.5], "beta": [0.625, 0.375], "eps": [-1e-6, -1e-6]}
    for name, values in trained.items():
        m.keys["/xielu." + name] = values
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        alpha_p, beta, eps = softplus(trained["alpha_p"][i]), trained["beta"][i], trained["eps"][i]
        alpha_n = beta + softplus(trained["alpha_n"][i])
        xielu = lambda u: np.where(u > 0, alpha_p * u * u, alpha_n * (np.expm1(np.minimum(u, eps)) - u)) + beta * u
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.head_dim, mean=1.0, spread=0.4))
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + plain_network(m, m.norm(x, s + "ffn_norm"), s, xielu, bias=False)
    return m, m.head(x, tied=False)
