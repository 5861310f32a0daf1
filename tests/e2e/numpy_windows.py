"""Decoders whose layers differ in window, rotation or experts in NumPy, for make_families.py."""
from numpy_latent import grouped_experts
from numpy_model import VOCAB, Model, np, silu, stems
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


def cohere2moe(ids, layer_norm=True):
    """Full layers do not rotate, unless they are dense. Expert layers use half of the sum."""
    m = Model("cohere2moe", layer_norm=layer_norm, layers=5, layers_differ=True)
    logits, window = m.key("logit_scale", 0.3), m.key("attention.sliding_window", 4)
    dense, routing = m.key("leading_dense_block_count", 1), router(m)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        n = m.norm(x, s + "attn_norm")
        q, k, v = m.qkv(n, s)
        local = i % 4 != 0
        if local or i < dense:
            q, k = m.rope(q, False), m.rope(k, False)
        x = x + m.linear(m.attend(q, k, v, window=window if local else 0), s + "attn_output", m.width)
        if i < dense:
            x = x + m.ffn_gated(n, s, silu)
        else:
            x = x + 0.5 * (grouped_experts(m, n, s, biased=False, **routing) + shared_network(m, n, s, HIDDEN))
    return m, m.head(x) * logits


def cohere2moe_rms(ids):
    return cohere2moe(ids, layer_norm=False)


def limited(c):
    """SwiGLU with both factors limited to c; 0: no limit."""
    return lambda gate, up: np.minimum(silu(gate), c or np.inf) * np.clip(up, -(c or np.inf), c or np.inf)


def step35(ids):
    """Heads, windows, RoPE and limits by layer; layer 0 is dense."""
    m = Model("step35", layers=5, base=5e6, layers_differ=True)
    heads, kv_heads = m.key("attention.head_count", [4, 6, 6, 2, 4]), m.key("attention.head_count_kv", [2, 2, 3, 1, 2])
    local, window = m.key("attention.sliding_window_pattern", [False, True, True, True, False]), m.key("attention.sliding_window", 4)
    dims, base = m.key("rope.dimension_count_swa", 12), m.key("rope.freq_base_swa", 1e4)
    half = m.rotary // 2
    factors = m.tensor("rope_freqs.weight", half, mean=2.0, spread=0.5)[:half // 2]
    experts, shared = m.key("swiglu_clamp_exp", [0.0, 0.5, 0.0, 0.75, 0.25]), m.key("swiglu_clamp_shexp", [0.5, 0.0, 0.5, 0.25, 0.0])
    routing = router(m)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        m.heads, m.kv_heads = heads[i], kv_heads[i]
        n = m.norm(x, s + "attn_norm")
        q, k, v = m.qkv(n, s)
        q, k = head_norm(m, q, s + "attn_q_norm"), head_norm(m, k, s + "attn_k_norm")
        m.rotary = dims if local[i] else half
        turn = dict(base=base) if local[i] else dict(factors=factors)
        a = m.attend(m.rope(q, True, **turn), m.rope(k, True, **turn), v, window=window if local[i] else 0)
        a = a * np.repeat(sigmoid(m.linear(n, s + "attn_gate", m.heads)), m.head_dim, axis=-1)
        x = x + m.linear(a, s + "attn_output", m.width)
        n, act = m.norm(x, s + "ffn_norm"), limited(shared[i])
        if i == 0:
            x = x + m.linear(act(m.linear(n, s + "ffn_gate", m.ffn), m.linear(n, s + "ffn_up", m.ffn)), s + "ffn_down", m.width)
            continue
        x = x + grouped_experts(m, n, s, act=limited(experts[i]), **routing)
        x = x + m.linear(act(m.linear(n, s + "ffn_gate_shexp", HIDDEN), m.linear(n, s + "ffn_up_shexp", HIDDEN)), s + "ffn_down_shexp", m.width)
    return m, m.head(x, tied=False)


def grovemoe(ids):
    """Adjugate experts on the experts' result: those of the first chosen experts' groups, weighted by the scores of the experts
    that have the groups' numbers."""
    m = Model("grovemoe", base=1e7, head_dim=32)
    per, hidden = m.key("experts_per_group", 4), m.key("expert_chunk_feed_forward_length", 24)
    scale, groups = m.key("expert_group_scale", 0.75), COUNT // 4
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        q, k = head_norm(m, q, s + "attn_q_norm"), head_norm(m, k, s + "attn_k_norm")
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        y = m.experts(n, s, COUNT, USED, HIDDEN, over_chosen=True)
        small = {c: m.tensor(f"{s}ffn_{c}_chexps.weight", groups, *shape) for c, shape in
                 (("gate", (hidden, m.width)), ("up", (hidden, m.width)), ("down", (m.width, hidden)))}
        logits, added = m.linear(n, s + "ffn_gate_inp", COUNT), np.zeros_like(y)
        for t, row in enumerate(y):
            numbers = np.argsort(-logits[t], kind="stable")[:USED][:min(USED, groups)] // per
            p = np.exp(logits[t] - logits[t].max())[numbers]
            for e, share in zip(numbers, p / p.sum()):
                added[t] += share * (small["down"][e] @ (silu(small["gate"][e] @ row) * (small["up"][e] @ row)))
        x = x + y + scale * added
    return m, m.head(x, tied=False)


def phimoe(ids):
    m = Model("phimoe", rotary=12)
    window = m.key("attention.sliding_window", 5)
    m.key("rope.scaling.original_context_length", 64)
    magnitude = m.key("rope.scaling.attn_factor", 1.25)
    factors = {n: m.tensor(f"rope_factors_{n}.weight", m.rotary // 2, mean=mean, spread=0.5) for n, mean in (("long", 4.0), ("short", 1.5))}
    turn = dict(halves=True, factors=factors["short"], magnitude=magnitude)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm", bias=True), s, bias=True)
        x = x + m.linear(m.attend(m.rope(q, **turn), m.rope(k, **turn), v, window=window), s + "attn_output", m.width, bias=True)
        x = x + m.experts(m.norm(x, s + "ffn_norm", bias=True), s, 6, 2, 32, over_chosen=True)
    return m, m.head(x, tied=False, bias=True) + m.tensor("output.bias", VOCAB, spread=0.5)


def arctic(ids):
    """The experts read a layer's input."""
    m = Model("arctic", ffn=32)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
        y = x + m.linear(m.attend(m.rope(q, False), m.rope(k, False), v), s + "attn_output", m.width)
        n = m.norm(y, s + "ffn_norm")
        h = silu(m.linear(n, s + "ffn_gate", m.width)) * m.linear(n, s + "ffn_up", m.width)
        x = y + m.linear(h, s + "ffn_down", m.width) + m.experts(m.norm(x, s + "ffn_norm_exps"), s, 6, 2, 32, over_chosen=True)
    return m, m.head(x, tied=False)


def dbrx(ids):
    m = Model("dbrx", layer_norm=True, base=5e5)
    clamp = m.key("attention.clamp_kqv", 1.5)
    x = m.embed(ids)
    for s in stems(m):
        q, k, v = (np.clip(y, -clamp, clamp) for y in m.qkv(m.norm(x, s + "attn_norm"), s, fused=True))
        x = x + m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)
        x = x + m.experts(m.norm(x, s + "attn_output_norm"), s, 6, 2, 32, over_chosen=True)
    return m, m.head(x, tied=False)


def deci(ids):
    """Layer 1 lacks attention, layer 2 has a matrix in its place, layer 3 lacks the FFN."""
    m = Model("deci", layers=5, base=5e5, layers_differ=True)
    heads, kv_heads = m.key("attention.head_count", [4, 0, 4, 4, 2]), m.key("attention.head_count_kv", [2, 0, 0, 1, 2])
    widths = m.key("feed_forward_length", [64, 40, 64, 0, 48])
    factors = m.tensor("rope_freqs.weight", m.rotary // 2, mean=2.0, spread=0.5)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        m.heads, m.kv_heads, m.ffn = heads[i], kv_heads[i], widths[i]
        if kv_heads[i]:
            q, k, v = m.qkv(m.norm(x, s + "attn_norm"), s)
            x = x + m.linear(m.attend(m.rope(q, False, factors=factors), m.rope(k, False, factors=factors), v), s + "attn_output", m.width)
        elif heads[i]:
            x = x + m.linear(m.norm(x, s + "attn_norm"), s + "attn_output", m.width)
        if widths[i]:
            x = x + m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu)
    return m, m.head(x, tied=False)
