"""Llama-like decoders in NumPy, for make_families.py."""
from numpy_latent import yarn
from numpy_model import Model, np, silu, stems
from numpy_sparse import head_norm


def llama(ids, family="ernie4_5"):
    m = Model(family, head_dim=32)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        x = x + m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x)


def ernie4_5(ids):
    return llama(ids)


def internlm2(ids):
    return llama(ids, "internlm2")


def xverse(ids):
    return llama(ids, "xverse")


def mistral3(ids):
    """YaRN without the factor on cos and sin. Queries are scaled up with the number of whole original contexts before them."""
    m = Model("mistral3", head_dim=32, base=1e6)
    factor, original = m.key("rope.scaling.factor", 4.0), m.key("rope.scaling.original_context_length", 5)
    m.keys.update({"rope.scaling.type": "yarn", "rope.scaling.yarn_log_multiplier": 1.0})
    scale = m.key("attention.temperature_scale", 0.4)
    growth = 1 + scale * np.log(1 + np.arange(len(ids)) // original)
    factors = yarn(m, factor, original)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q, k = m.rope(q, False, factors=factors) * growth[:, None, None], m.rope(k, False, factors=factors)
        x = x + m.linear(m.attend(q, k, v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x, tied=False)


def exaone(ids):
    m = Model("exaone", head_dim=32)
    factors = m.tensor("rope_freqs.weight", m.rotary // 2, mean=2.0, spread=0.5)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        x = x + m.linear(m.attend(m.rope(q, True, factors=factors), m.rope(k, True, factors=factors), v), s + "attn_output", m.width)
        x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x, tied=False)


def exaone4(ids, windows=True):
    """With windows the global layers have no RoPE."""
    m = Model("exaone4", layers=5 if windows else 2, base=1e6)
    window = m.key("attention.sliding_window", 4) if windows else 0
    factors = m.tensor("rope_freqs.weight", m.rotary // 2, mean=2.0, spread=0.5)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        local = windows and i % 4 != 3
        q, k, v = m.qkv(x, s)
        q, k = head_norm(m, q, s + "attn_q_norm"), head_norm(m, k, s + "attn_k_norm")
        if local or not windows:
            q, k = m.rope(q, True, factors=factors), m.rope(k, True, factors=factors)
        x = x + m.norm(m.linear(m.attend(q, k, v, window=window if local else 0), s + "attn_output", m.width), s + "post_attention_norm")
        x = x + m.norm(m.ffn_gated(x, s, silu), s + "post_ffw_norm")
    return m, m.head(x, tied=False)


def exaone4_global(ids):
    return exaone4(ids, windows=False)


def bitnet(ids):
    """Norms on the attended heads and on the gated columns; a factor for each matrix."""
    m = Model("bitnet", base=5e5)
    m.scaled = True
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        a = m.attend(m.rope(q, True), m.rope(k, True), v)
        x = x + m.linear(m.normal(a, m.tensor(s + "attn_sub_norm.weight", a.shape[-1], mean=1.0, spread=0.4)), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        h = silu(m.linear(n, s + "ffn_gate", m.ffn)) * m.linear(n, s + "ffn_up", m.ffn)
        x = x + m.linear(m.normal(h, m.tensor(s + "ffn_sub_norm.weight", m.ffn, mean=1.0, spread=0.4)), s + "ffn_down", m.width)
    return m, m.head(x)
