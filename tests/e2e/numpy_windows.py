"""Decoders whose layers differ in window, rotation or experts in NumPy, for make_families.py."""
from numpy_latent import grouped_experts
from numpy_model import Model, np, silu, stems
from numpy_sparse import head_norm, shared_network

COUNT, USED, HIDDEN = 8, 3, 32


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def router(m, used=USED, scale=2.5):
    """Keys of sigmoid routing with normalised weights, and what grouped_experts takes for them."""
    m.keys.update({"expert_count": COUNT, "expert_used_count": used, "expert_feed_forward_length": HIDDEN, "expert_gating_func": 2,
                   "expert_weights_norm": True})
    return dict(count=COUNT, used=used, hidden=HIDDEN, sigmoid=True, groups=1, groups_used=1, norm=True, scale=m.key("expert_weights_scale", scale))


def afmoe(ids):
    """Which layers have windows is in the file; which rotate is not."""
    m = Model("afmoe", layers=5, layers_differ=True)
    window, local = m.key("attention.sliding_window", 4), m.key("attention.sliding_window_pattern", [True, False, True, True, False])
    dense, routing = m.key("leading_dense_block_count", 1), router(m)
    x = m.embed(ids) * m.width ** 0.5
    for i, s in enumerate(stems(m)):
        n = m.norm(x, s + "attn_norm")
        q, k, v = m.qkv(n, s)
        q, k = head_norm(m, q, s + "attn_q_norm"), head_norm(m, k, s + "attn_k_norm")
        if (i + 1) % 4:
            q, k = m.rope(q, True), m.rope(k, True)
        a = m.attend(q, k, v, window=window if local[i] else 0)
        a = a * sigmoid(m.linear(n, s + "attn_gate", a.shape[-1]))
        x = x + m.norm(m.linear(a, s + "attn_output", m.width), s + "post_attention_norm")
        n = m.norm(x, s + "ffn_norm")
        f = m.ffn_gated(n, s, silu) if i < dense else grouped_experts(m, n, s, **routing) + shared_network(m, n, s, HIDDEN)
        x = x + m.norm(f, s + "post_ffw_norm")
    return m, m.head(x, tied=False)


def exaone_moe(ids):
    """Only windowed layers rotate, by a base of their own."""
    m = Model("exaone-moe", layers=5, head_dim=32, base=1e6, layers_differ=True)
    window, base = m.key("attention.sliding_window", 4), m.key("rope.freq_base_swa", 2e4)
    dense, routing = m.key("leading_dense_block_count", 1), router(m)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q, k = head_norm(m, q, s + "attn_q_norm"), head_norm(m, k, s + "attn_k_norm")
        local = i % 4 != 3
        if local:
            q, k = m.rope(q, True, base=base), m.rope(k, True, base=base)
        x = x + m.linear(m.attend(q, k, v, window=window if local else 0), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        x = x + (m.ffn_gated(n, s, silu) if i < dense else grouped_experts(m, n, s, **routing) + shared_network(m, n, s, HIDDEN))
    return m, m.head(x, tied=False)


def smallthinker(ids, windows=True):
    """The router reads a layer's input. A window is 4096 whatever the file says; without one all layers rotate."""
    m = Model("smallthinker", layers=5, base=1.5e6)
    m.keys.update({"expert_count": COUNT, "expert_used_count": USED, "expert_feed_forward_length": HIDDEN, "expert_gating_func": 2 if windows else 1})
    if windows:
        m.key("attention.sliding_window", 4)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        if i % 4 or not windows:
            q, k = m.rope(q, True), m.rope(k, True)
        y = x + m.linear(m.attend(q, k, v), s + "attn_output", m.width)
        relu = lambda gate, up: np.maximum(gate, 0) * up
        x = y + grouped_experts(m, m.norm(y, s + "ffn_norm"), s, COUNT, USED, HIDDEN, sigmoid=windows, groups=1, groups_used=1, norm=True,
                                scale=1.0, biased=False, act=relu, routed=x)
    return m, m.head(x)


def smallthinker_global(ids):
    return smallthinker(ids, windows=False)


def llama4(ids, experts=COUNT, step=2):
    """Contexts are too short for chunks and temperatures. The model with 128 experts has no QK-norm."""
    m = Model("llama4", layers=4 if experts == COUNT else 2, base=5e5, layers_differ=True)
    m.keys.update({"expert_count": experts, "expert_used_count": 1, "expert_feed_forward_length": HIDDEN, "interleave_moe_layer_step": step})
    factors = m.tensor("rope_freqs.weight", m.rotary // 2, mean=2.0, spread=0.5)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        if (i + 1) % 4:
            q, k = m.rope(q, False, factors=factors), m.rope(k, False, factors=factors)
            q, k = (q, k) if experts == 128 else (m.normal(q, 1), m.normal(k, 1))
        x = x + m.linear(m.attend(q, k, v), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        if (i + 1) % step:
            x = x + m.ffn_gated(n, s, silu)
        else:
            x = x + shared_network(m, n, s, HIDDEN) + grouped_experts(m, n, s, experts, 1, HIDDEN, sigmoid=True, groups=1, groups_used=1, norm=False,
                                                                      scale=1.0, biased=False, weighted_input=True)
    return m, m.head(x, tied=False)


def llama4_maverick(ids):
    return llama4(ids, experts=128, step=1)
