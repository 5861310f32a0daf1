"""DeepSeek V2 and V3 (MLA, group-limited routing) in NumPy, for make_families.py."""
import numpy as np

from numpy_model import Model, silu, stems, stored, swiglu


def yarn(m, factor, original):
    """YaRN as divisors of the RoPE frequencies: slow rotations are interpolated, fast ones unchanged (arXiv 2309.00071)."""
    count = m.rotary // 2
    freqs = m.base ** (-2.0 * np.arange(count) / m.rotary)
    low, high = (m.rotary * np.log(original / (beta * 2 * np.pi)) / (2 * np.log(m.base)) for beta in (32.0, 1.0))
    low, high = max(np.floor(low), 0), min(np.ceil(high), m.rotary - 1)
    slow = np.clip((np.arange(count) - low) / max(0.001, high - low), 0, 1)
    return freqs / (freqs / factor * slow + freqs * (1 - slow))


def latent_attention(m, x, s, q_rank, kv_b, turn, scale, growth=None, choose=None):
    """MLA with keys and values of every head expanded (arXiv 2405.04434, equations 9 to 19). The KV cache holds the expanded
    rows if one matrix (attn_kv_b) makes keys and values, else the latent row. growth [tokens]: a factor on each token's query.
    choose(x, normed query latent, stem): the positions that each token attends to, if not all before it."""
    plain, rotated, value, rank = 16, m.rotary, 8 if kv_b else 12, 24
    heads = np.split(np.arange(m.heads * (plain + rotated)), m.heads)
    low = m.normal(m.linear(x, s + "attn_q_a", q_rank), m.tensor(s + "attn_q_a_norm.weight", q_rank, mean=1.0, spread=0.4)) if q_rank else x
    q = m.linear(low, s + ("attn_q_b" if q_rank else "attn_q"), m.heads * (plain + rotated))
    seen = choose(x, low, s) if choose else [np.arange(t + 1) for t in range(len(x))]
    q = q if growth is None else q * growth[:, None]
    both = m.linear(x, s + "attn_kv_a_mqa", rank + rotated)
    latent = m.normal(both[:, :rank], m.tensor(s + "attn_kv_a_norm.weight", rank, mean=1.0, spread=0.4))
    k_turned = stored(m.rope(both[:, None, rank:], False, **turn)[:, 0])
    latent = latent if kv_b else stored(latent)
    if kv_b:
        w = m.tensor(s + "attn_kv_b.weight", m.heads * (plain + value), rank).reshape(m.heads, plain + value, rank)
        w_k, w_v = w[:, :plain], w[:, plain:]
    else:
        w_k = m.tensor(s + "attn_k_b.weight", m.heads, rank, plain).transpose(0, 2, 1)
        w_v = m.tensor(s + "attn_v_b.weight", m.heads, value, rank)
    out = np.zeros((len(x), m.heads, value))
    for h, columns in enumerate(heads):
        q_turned = m.rope(q[:, None, columns[plain:]], False, **turn)[:, 0]
        k, v = latent @ w_k[h].T, latent @ w_v[h].T
        k, v = (stored(k), stored(v)) if kv_b else (k, v)
        for t in range(len(x)):
            score = (k[seen[t]] @ q[t, columns[:plain]] + k_turned[seen[t]] @ q_turned[t]) * scale
            p = np.exp(score - score.max())
            out[t, h] = p / p.sum() @ v[seen[t]]
    return m.linear(out.reshape(len(x), -1), s + "attn_output", m.width)


def grouped_experts(m, x, s, count, used, hidden, sigmoid, groups, groups_used, norm, scale, biased=None, act=swiglu, routed=None, weighted_input=False):
    """Group-limited routing (arXiv 2412.19437, 2.1.2, and V2's device limit): only experts of the best groups are selected.
    V3 scores experts by sigmoid plus bias and a group by the sum of its two best; V2 scores by softmax and a group by its
    best. The bias affects the selection only, not the weights. Sigmoid routers have a bias unless `biased` says otherwise. The
    router reads `routed` instead of x if given. With weighted_input the weights multiply the experts' inputs."""
    logits = m.linear(x if routed is None else routed, s + "ffn_gate_inp", count)
    bias = m.tensor(s + "exp_probs_b.bias", count, spread=0.5) if (sigmoid if biased is None else biased) else np.zeros(count)
    w = {n: m.tensor(f"{s}ffn_{n}_exps.weight", count, r, c) for n, r, c in
         (("gate", hidden, m.width), ("up", hidden, m.width), ("down", m.width, hidden))}
    out = np.zeros_like(x)
    for t, row in enumerate(x):
        p = 1 / (1 + np.exp(-logits[t])) if sigmoid else np.exp(logits[t] - logits[t].max())
        if not sigmoid:
            p = p / p.sum()
        rank = (p + bias).reshape(groups, -1)
        best = np.argsort(-np.sort(rank, axis=-1)[:, -(2 if sigmoid else 1):].sum(-1), kind="stable")[:groups_used]
        rank = np.where(np.isin(np.arange(groups), best)[:, None], rank, -np.inf).ravel()
        chosen = np.argsort(-rank, kind="stable")[:used]
        shares = p[chosen] * scale / (p[chosen].sum() if norm else 1)
        for e, share in zip(chosen, shares):
            inner, outer = (share, 1) if weighted_input else (1, share)
            out[t] += outer * (w["down"][e] @ act(w["gate"][e] @ (inner * row), w["up"][e] @ (inner * row)))
    return out


def deepseek2(ids, q_rank, kv_b, sigmoid, groups, groups_used, norm, scale, family="deepseek2", temperature=None, indexer=None):
    """temperature: factor and length of the scaling of queries by position. indexer(model, RoPE options) makes `choose`."""
    m = Model(family, layers=3, heads=4, kv_heads=4 if kv_b else 1, head_dim=24, rotary=8, layers_differ=True)
    count, used, hidden, shared, dense = 8, 3, 32, 2, 1
    m.keys.update({"attention.kv_lora_rank": 24, "leading_dense_block_count": dense, "expert_count": count, "expert_used_count": used,
                   "expert_feed_forward_length": hidden, "expert_shared_count": shared})
    if q_rank:
        m.keys["attention.q_lora_rank"] = q_rank
    if kv_b:
        m.keys["attention.value_length"] = 8
    else:
        m.keys.update({"attention.key_length": 32, "attention.value_length": 24, "attention.key_length_mla": 24, "attention.value_length_mla": 12})
    if sigmoid:
        m.keys["expert_gating_func"] = 2
    if groups > 1:
        m.keys.update({"expert_group_count": groups, "expert_group_used_count": groups_used})
    if norm:
        m.keys["expert_weights_norm"] = True
    scale = m.key("expert_weights_scale", scale)
    factor, original, log = m.key("rope.scaling.factor", 4.0), m.key("rope.scaling.original_context_length", 16), m.key("rope.scaling.yarn_log_multiplier", 0.0707)
    m.key("rope.scaling.type", "yarn")
    turn = dict(factors=yarn(m, factor, original))
    growth = None
    if temperature:
        warmth, length = m.key("attention.temperature_scale", temperature[0]), m.key("attention.temperature_length", temperature[1])
        growth = 1 + warmth * np.log(1 + np.arange(len(ids)) // length)
    scores = (1 + log * np.log(factor)) ** 2 / np.sqrt(24)
    choose = indexer(m, turn) if indexer else None
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        x = x + latent_attention(m, m.norm(x, s + "attn_norm"), s, q_rank, kv_b, turn, scores, growth, choose)
        n = m.norm(x, s + "ffn_norm")
        if i < dense:
            x = x + m.ffn_gated(n, s, silu)
            continue
        h = swiglu(m.linear(n, s + "ffn_gate_shexp", shared * hidden), m.linear(n, s + "ffn_up_shexp", shared * hidden))
        x = x + m.linear(h, s + "ffn_down_shexp", m.width) + grouped_experts(m, n, s, count, used, hidden, sigmoid, groups, groups_used, norm, scale)
    return m, m.head(x, tied=False)
