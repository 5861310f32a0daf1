"""Gemma 4 and Gemma 3n in NumPy, for make_families.py."""
from numpy_model import VOCAB, Model, gelu, np, stems

CUTOFF = 1.6448533535  # standard deviations


def unit_norm(m, x):
    return m.normal(x, 1.0)


def head_norm(m, x, stem, d, mean=1.0):
    return m.normal(x, m.tensor(stem + ".weight", d, mean=mean, spread=0.4 * mean))


def per_layer_inputs(m, embedding, ids, inner):
    """[tokens, layers, inner]"""
    m.key("embedding_length_per_layer_input", inner)
    rows = m.linear(embedding, "per_layer_model_proj", m.layers * inner) / m.width ** 0.5
    rows = head_norm(m, rows.reshape(len(ids), m.layers, inner), "per_layer_proj_norm", inner)
    table = m.tensor("per_layer_token_embd.weight", VOCAB, m.layers * inner, spread=1.0)
    return (rows + table[ids].reshape(rows.shape) * inner ** 0.5) / 2 ** 0.5


def per_layer_block(m, x, own, s):
    h = gelu(m.linear(x, s + "inp_gate", own.shape[-1])) * own
    return m.norm(m.linear(h, s + "proj", m.width), s + "post_norm")


class Attention:
    """Layers with heads of their own, some of which read the keys and values of another layer."""

    def __init__(self, m, mean=1.0):
        self.m, self.cache, self.mean = m, {}, mean  # mean of the norms' weights for q and k

    def __call__(self, x, i, s, d, kv_heads, window, turn, reads=None, keys_as_values=False):
        m = self.m
        m.kv_heads, m.rotary = kv_heads, d
        heads = lambda y: y.reshape(len(x), -1, d)
        q = m.rope(head_norm(m, heads(m.linear(x, s + "attn_q", m.heads * d)), s + "attn_q_norm", d, self.mean), True, **turn)
        if reads is None:
            k = heads(m.linear(x, s + "attn_k", kv_heads * d))
            v = k if keys_as_values else heads(m.linear(x, s + "attn_v", kv_heads * d))
            k = m.rope(head_norm(m, k, s + "attn_k_norm", d, self.mean), True, **turn)
            self.cache[i] = k, unit_norm(m, v)
        k, v = self.cache[i if reads is None else reads]
        return m.linear(m.attend(q, k, v, scale=1.0, window=window), s + "attn_output", m.width)


def routed(m, x, s, count, used, hidden):
    """The router has a norm of its own, and each expert a factor."""
    m.keys.update({"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": hidden})
    rows = unit_norm(m, x) / m.width ** 0.5 * m.tensor(s + "ffn_gate_inp.scale", m.width, mean=4.0, spread=1.0)
    logits = m.linear(rows, s + "ffn_gate_inp", count)
    inputs = m.norm(x, s + "pre_ffw_norm_2")
    gate_up = m.tensor(s + "ffn_gate_up_exps.weight", count, 2 * hidden, m.width)
    down = m.tensor(s + "ffn_down_exps.weight", count, m.width, hidden)
    factors = m.tensor(s + "ffn_down_exps.scale", count, mean=1.0, spread=0.4)
    out = np.zeros_like(x)
    for t, row in enumerate(inputs):
        chosen = np.argsort(-logits[t], kind="stable")[:used]
        p = np.exp(logits[t, chosen] - logits[t].max())
        for e, share in zip(chosen, p / p.sum()):
            gate, up = np.split(gate_up[e] @ row, 2)
            out[t] += share * factors[e] * (down[e] @ (gelu(gate) * up))
    return out


def gemma4(ids, experts=False):
    """With experts: keys as values in full layers, no per-layer inputs, no shared caches."""
    windowed = [True, False] * (2 if experts else 3)
    m = Model("gemma4", layers=len(windowed), head_dim=32, base=1e6, layers_differ=True,
              kv_heads=[2 if w else 1 for w in windowed], ffn=64 if experts else [64] * 4 + [80] * 2)
    widths = [m.ffn] * m.layers if experts else m.ffn
    m.keys["attention.sliding_window_pattern"] = windowed
    window, local, logits = m.key("attention.sliding_window", 4), m.key("attention.key_length_swa", 16), m.key("final_logit_softcapping", 3.0)
    m.keys.update({"attention.value_length_swa": local, "rope.dimension_count_swa": local, "rope.freq_base_swa": 10000.0})
    first = m.layers - m.key("attention.shared_kv_layers", 0 if experts else 2)
    factors = m.tensor("rope_freqs.weight", m.head_dim // 2, mean=2.0, spread=0.8)
    embedding = m.embed(ids) * m.width ** 0.5
    inputs = None if experts else per_layer_inputs(m, embedding, ids, 16)
    attention, x = Attention(m), embedding
    for i, s in enumerate(stems(m)):
        m.ffn = widths[i]
        turn = dict(base=10000.0) if windowed[i] else dict(base=1e6, factors=factors)
        a = attention(m.norm(x, s + "attn_norm"), i, s, local if windowed[i] else m.head_dim, 2 if windowed[i] else 1,
                      window if windowed[i] else 0, turn, None if i < first else first - (2 if windowed[i] else 1), experts and not windowed[i])
        x = x + m.norm(a, s + "post_attention_norm")
        f = m.ffn_gated(m.norm(x, s + "ffn_norm"), s, gelu)
        if experts:
            f = m.norm(f, s + "post_ffw_norm_1") + m.norm(routed(m, x, s, 6, 3, 32), s + "post_ffw_norm_2")
        x = x + m.norm(f, s + "post_ffw_norm")
        if inputs is not None:
            x = x + per_layer_block(m, x, inputs[:, i], s)
        x = x * m.tensor(s + "layer_output_scale.weight", 1, mean=0.8, spread=0.2)
    return m, logits * np.tanh(m.head(x) / logits)


def gemma4_moe(ids):
    return gemma4(ids, experts=True)


def lengthened(x, like):
    return x * np.sqrt((like * like).sum(-1, keepdims=True) / (x * x).sum(-1, keepdims=True))


def coefficients(m, x, s, name, count):
    rows = np.tanh(m.linear(m.norm(x, s + "altup_router_norm") / m.width, s + "altup_router", 4))
    return rows @ m.tensor(s + name + ".weight", count, 4).T


def gemma3n(ids):
    """Four streams: x [4, tokens, width]. 22 layers, because what changes at layers 10 and 20 is no key. Small scores and
    a wide FFN, of which few columns are active, keep the rounding of keys and values from growing over the layers."""
    m = Model("gemma3n", layers=22, base=1e6, width=96, ffn=512, kv_heads=1)
    windowed = [i % 5 != 4 for i in range(20)] + [True, False]
    m.keys.update({"attention.sliding_window_pattern": windowed, "altup.num_inputs": 4, "altup.active_idx": 0})
    window = m.key("attention.sliding_window", 4)
    embedding = m.embed(ids) * m.width ** 0.5
    inputs = per_layer_inputs(m, embedding, ids, 16)
    first = m.tensor("altup_proj.weight", 3, m.width, m.width)
    x = np.stack([embedding] + [lengthened(embedding @ w.T, embedding) for w in first])
    attention, root = Attention(m, 0.3), 2 ** 0.5
    for i, s in enumerate(stems(m)):
        c = coefficients(m, x[0], s, "altup_predict_coef", 16).reshape(len(ids), 4, 4)
        p = x + np.einsum("tjm,mtk->jtk", c, x)
        a = m.norm(p[0], s + "attn_norm")
        rank = 8
        laurel = a + m.norm(m.linear(m.linear(a, s + "laurel_l", rank), s + "laurel_r", m.width), s + "laurel_post_norm")
        for name in ("attn_k", "attn_v"):  # in the file, also where the layer reads another one's cache
            m.tensor(s + name + ".weight", m.kv_heads * m.head_dim, m.width)
        m.tensor(s + "attn_k_norm.weight", m.head_dim, mean=0.3, spread=0.4 * 0.3)
        attended = attention(a, i, s, m.head_dim, 1, window if windowed[i] else 0, dict(base=10000.0 if windowed[i] else 1e6),
                             None if i < 20 else 18 if windowed[i] else 19)
        y = (p[0] + m.norm(attended, s + "post_attention_norm") + laurel) / root
        h = m.norm(y, s + "ffn_norm")
        gate, up = m.linear(h, s + "ffn_gate", m.ffn), m.linear(h, s + "ffn_up", m.ffn)
        if i < 10:
            gate = np.maximum(0, gate - gate.mean(-1, keepdims=True) - CUTOFF * gate.std(-1, ddof=1, keepdims=True))
        z = y + m.norm(m.linear(gelu(gate) * up, s + "ffn_down", m.width), s + "post_ffw_norm")
        c = coefficients(m, z, s, "altup_correct_coef", 4) + 1
        x = p + c.T[:, :, None] * (z - p[0])
        scaled = x[0] * m.tensor(s + "altup_correct_scale.weight", m.width, mean=1.0, spread=0.4)
        x[1:] += per_layer_block(m, scaled, inputs[:, i], s)
    last = m.tensor("altup_unembd_proj.weight", 3, m.width, m.width)
    out = (x[0] + sum(lengthened(x[j + 1] @ last[j].T, x[0]) for j in range(3))) / 4
    return m, 30 * np.tanh(m.head(out) / 30)
