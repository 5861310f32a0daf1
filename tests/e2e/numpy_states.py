"""Models with recurrent state that have no reference data, in NumPy, one token after another, for make_families.py. Sources: arXiv
2312.00752, 2405.21060, 2410.05355 and 2509.04897."""
from numpy_model import Model, np, silu, stems


def softplus(x):
    return np.log1p(np.exp(x))


def convolved(x, kernel, bias=0.0):
    """Causal convolution of each column: the kernel's last tap meets the newest row."""
    taps = kernel.shape[1]
    padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
    return np.stack([(padded[t:t + taps].T * kernel).sum(1) for t in range(len(x))]) + bias


def unit(m, x):
    return m.normal(x, np.ones(x.shape[-1]))


def falcon_mamba(ids):
    """Mamba-1 with RMS norms without weights on dt, B and C."""
    m = Model("mamba", kv_heads=0)
    m.keys.update({"attention.head_count": 0, "feed_forward_length": 0, "ssm.dt_b_c_rms": True})
    inner, states, taps, rank = m.key("ssm.inner_size", 96), m.key("ssm.state_size", 8), m.key("ssm.conv_kernel", 4), m.key("ssm.time_step_rank", 8)
    x = m.embed(ids)
    for s in stems(m):
        u, z = np.split(m.linear(m.norm(x, s + "attn_norm"), s + "ssm_in", 2 * inner), 2, axis=-1)
        u = silu(convolved(u, m.tensor(s + "ssm_conv1d.weight", inner, taps), m.tensor(s + "ssm_conv1d.bias", inner, spread=0.5)))
        dt, b, c = (unit(m, part) for part in np.split(m.linear(u, s + "ssm_x", rank + 2 * states), [rank, rank + states], axis=-1))
        delta = softplus(m.linear(dt, s + "ssm_dt", inner, bias=True))
        a, d = m.tensor(s + "ssm_a", inner, states, mean=-1.0, spread=0.6), m.tensor(s + "ssm_d", inner, mean=1.0, spread=0.4)
        state, y = np.zeros((inner, states)), np.zeros_like(u)
        for t in range(len(x)):
            state = state * np.exp(delta[t][:, None] * a) + np.outer(delta[t] * u[t], b[t])
            y[t] = state @ c[t] + d * u[t]
        x = x + m.linear(y * silu(z), s + "ssm_out", m.width)
    return m, m.head(x, tied=False)


def plamo2(ids):
    """The second of three layers has attention. Norms behind blocks and those of dt, B and C have names without ".weight"."""
    m = Model("plamo2", layers=3, layers_differ=True)
    m.keys.update({"attention.head_count_kv": [0, m.kv_heads, 0], "ssm.group_count": 0})
    heads, states, taps = m.key("ssm.time_step_rank", 6), m.key("ssm.state_size", 8), m.key("ssm.conv_kernel", 4)
    inner = m.key("ssm.inner_size", 96)
    size, rank = inner // heads, max(64, m.width // 16)
    bare = lambda name, n: m.tensor(name, n, mean=1.0, spread=0.4)

    def mamba(x, s):
        both = m.linear(x, s + "ssm_in", 2 * inner).reshape(len(x), heads, 2, size)
        z, u = both[:, :, 0], both[:, :, 1].reshape(len(x), inner)
        u = silu(convolved(u, m.tensor(s + "ssm_conv1d.weight", inner, taps)))
        b, c, dt = np.split(m.linear(u, s + "ssm_x", 2 * states + rank), [states, 2 * states], axis=-1)
        b, c, dt = (m.normal(part, bare(f"{s}ssm_{name}_norm", part.shape[-1])) for part, name in ((b, "b"), (c, "c"), (dt, "dt")))
        delta = softplus(m.linear(dt, s + "ssm_dt", heads, bias=True))
        a, d = m.tensor(s + "ssm_a", heads, mean=-1.0, spread=0.6), bare(s + "ssm_d", heads)
        state, u, y = np.zeros((heads, size, states)), u.reshape(len(x), heads, size), np.zeros((len(x), heads, size))
        for t in range(len(x)):
            state = state * np.exp(delta[t] * a)[:, None, None] + (delta[t][:, None] * u[t])[:, :, None] * b[t]
            y[t] = state @ c[t] + d[:, None] * u[t]
        return m.linear((y * silu(z)).reshape(len(x), inner), s + "ssm_out", m.width)

    def attention(x, s):
        q, k, v = m.qkv(x, s, fused=True)
        q = m.normal(q, m.tensor(s + "attn_q_norm.weight", m.heads, m.head_dim, mean=1.0, spread=0.4))
        k = m.normal(k, m.tensor(s + "attn_k_norm.weight", m.kv_heads, m.head_dim, mean=1.0, spread=0.4))
        return m.linear(m.attend(m.rope(q, True), m.rope(k, True), v), s + "attn_output", m.width)

    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        mixer = attention if i == 1 else mamba
        x = x + m.normal(mixer(m.norm(x, s + "attn_norm"), s), bare(s + "post_attention_norm", m.width))
        x = x + m.normal(m.ffn_gated(m.norm(x, s + "ffn_norm"), s, silu, fused=True), bare(s + "post_ffw_norm", m.width))
    return m, m.head(x)
