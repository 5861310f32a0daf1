"""Building blocks of make_families.py's models: hashed weights, and the layers that decoders share, in double precision."""
import re
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: the NumPy models: numpy is absent")
    sys.exit(77)  # skipped

VOCAB = 24


def uniform(name, count):
    """`count` float32 values in [-1, 1): a counter plus a hash of the name, mixed by the finaliser of MurmurHash3."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & 0xFFFFFFFF
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(seed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)


class Cache:
    """Precision of the KV cache: f16 if `half`, else exact."""
    half = False


def stored(x):
    """Keys or values after a round trip through the KV cache."""
    return x.astype(np.float16).astype(np.float64) if Cache.half else x


class Model:
    """A model's metadata and tensors. A forward pass declares each key and tensor by using it; the fixture lists them."""

    def __init__(self, family, **sizes):
        self.family = family
        self.keys, self.tensors, self.values = {}, {}, {}
        self.layers_differ = sizes.get("layers_differ", False)  # then the fixture lists each layer's tensors
        self.scaled = False  # then each matrix has a factor, as in NVFP4 and BitNet files
        self.layers = sizes.get("layers", 2)
        self.width, self.ffn = sizes.get("width", 48), sizes.get("ffn", 64)
        self.heads, self.kv_heads, self.head_dim = sizes.get("heads", 4), sizes.get("kv_heads", 2), sizes.get("head_dim", 16)
        self.rotary = sizes.get("rotary", self.head_dim)
        self.context = sizes.get("context", 64)
        self.base = sizes.get("base", 10000.0)
        self.layer_norm = sizes.get("layer_norm", False)
        self.eps = sizes.get("eps", 1e-3)
        for key, value in (("context_length", self.context), ("embedding_length", self.width), ("block_count", self.layers),
                           ("feed_forward_length", self.ffn), ("attention.head_count", self.heads),
                           ("attention.head_count_kv", self.kv_heads), ("attention.key_length", self.head_dim),
                           ("attention.value_length", self.head_dim), ("rope.dimension_count", self.rotary),
                           ("rope.freq_base", self.base),
                           ("attention.layer_norm_epsilon" if self.layer_norm else "attention.layer_norm_rms_epsilon", self.eps)):
            self.keys[key] = value

    def key(self, name, value):
        self.keys[name] = value
        return float(np.float32(value)) if isinstance(value, float) else value

    def tensor(self, name, *shape, mean=0.0, spread=None):
        """Shape row-major, slowest first; a GGUF file has the dims in reverse order."""
        spread = spread if spread is not None else round(2.5 / shape[-1] ** 0.5, 3)
        if name not in self.values:
            recipe = [list(shape), mean, spread]
            listed = name if self.layers_differ else re.sub(r"blk\.\d+", "blk.*", name)
            assert self.tensors.setdefault(listed, recipe) == recipe, "layers differ"
            flat = np.float32(mean) + np.float32(spread) * uniform(name, int(np.prod(shape)))
            self.values[name] = flat.astype(np.float64).reshape(shape)
        return self.values[name]

    # ---- parts ----

    def linear(self, x, stem, rows, bias=False):
        y = x @ self.tensor(stem + ".weight", rows, x.shape[-1]).T
        if self.scaled:
            y = y * self.tensor(stem + ".scale", 1, mean=1.0, spread=0.4)
        return y + self.tensor(stem + ".bias", rows, spread=0.5) if bias else y

    def normal(self, x, weight, bias=None):
        if self.layer_norm:
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float64(np.float32(self.eps))) * weight
        return y if bias is None else y + bias

    def norm(self, x, stem, bias=False):
        weight = self.tensor(stem + ".weight", self.width, mean=1.0, spread=0.4)
        return self.normal(x, weight, self.tensor(stem + ".bias", self.width, spread=0.5) if bias else None)

    def rope(self, x, halves, base=None, factors=1.0, magnitude=1.0, scale=1.0):
        """x [tokens, heads, head_dim]: rotates the first `rotary` dimensions, as halves or as neighbouring pairs."""
        count = self.rotary // 2
        freqs = np.float64(base or self.base) ** (-2.0 * np.arange(count) / self.rotary) / factors / scale
        angle = np.arange(len(x))[:, None, None] * freqs
        cos, sin = np.cos(angle) * magnitude, np.sin(angle) * magnitude
        out = x.copy()
        first = np.arange(count) if halves else 2 * np.arange(count)
        second = first + (count if halves else 1)
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def attend(self, q, k, v, scale=None, window=0, softcap=0.0, sinks=None):
        """q [tokens, heads, d], k and v [tokens, kv_heads, d] -> [tokens, heads * d]; causal. A sink [heads] is one more
        score in the softmax, without a value."""
        scale = self.head_dim ** -0.5 if scale is None else scale
        k, v = stored(k), stored(v)
        out = np.zeros_like(q)
        for t in range(len(q)):
            first = max(0, t - window + 1) if window else 0
            for h in range(self.heads):
                g = h * self.kv_heads // self.heads
                s = k[first:t + 1, g] @ q[t, h] * scale
                if softcap:
                    s = softcap * np.tanh(s / softcap)
                top = s.max() if sinks is None else max(s.max(), sinks[h])
                p = np.exp(s - top)
                out[t, h] = p / (p.sum() + (0 if sinks is None else np.exp(sinks[h] - top))) @ v[first:t + 1, g]
        return out.reshape(len(q), -1)

    def qkv(self, x, stem, bias=False, fused=False):
        n, m, d = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.head_dim
        if fused:
            parts = np.split(self.linear(x, stem + "attn_qkv", n + 2 * m, bias), [n, n + m], axis=-1)
        else:
            parts = [self.linear(x, stem + "attn_" + c, r, bias) for c, r in (("q", n), ("k", m), ("v", m))]
        return [p.reshape(len(x), -1, d) for p in parts]

    def ffn_gated(self, x, stem, act, fused=False):
        if fused:
            gate, up = np.split(self.linear(x, stem + "ffn_up", 2 * self.ffn), 2, axis=-1)
        else:
            gate, up = self.linear(x, stem + "ffn_gate", self.ffn), self.linear(x, stem + "ffn_up", self.ffn)
        return self.linear(act(gate) * up, stem + "ffn_down", self.width)

    def experts(self, x, stem, count, used, hidden, over_chosen, act=None, bias=False, gain=1.0, scaled=False):
        """MoE: the best `used` of `count` experts of `hidden` columns, weighted by a softmax over the selected logits or over
        all. `gain` makes gates large, so that a clamp takes effect. `scaled`: each expert's matrices have a factor."""
        self.keys.update({"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": hidden})
        logits = self.linear(x, stem + "ffn_gate_inp", count, bias)
        weights = {n: self.tensor(f"{stem}ffn_{n}_exps.weight", count, r, c, spread=round(2.5 * g / c ** 0.5, 3))
                   for n, r, c, g in (("gate", hidden, self.width, gain), ("up", hidden, self.width, gain),
                                      ("down", self.width, hidden, 1.0))}
        biases = {n: self.tensor(f"{stem}ffn_{n}_exps.bias", count, w.shape[1], spread=0.5) if bias else np.zeros((count, 1))
                  for n, w in weights.items()}
        factors = {n: self.tensor(f"{stem}ffn_{n}_exps.scale", count, mean=1.0, spread=0.4) if scaled else np.ones(count)
                   for n in weights}
        out = np.zeros_like(x)
        for t, row in enumerate(x):
            chosen = np.argsort(-logits[t], kind="stable")[:used]
            p = np.exp(logits[t] - logits[t].max())
            shares = p[chosen] / (p[chosen] if over_chosen else p).sum()
            for e, share in zip(chosen, shares):
                gate, up = (weights[n][e] @ row * factors[n][e] + biases[n][e] for n in ("gate", "up"))
                down = weights["down"][e] @ (act or swiglu)(gate, up) * factors["down"][e]
                out[t] += share * (down + biases["down"][e])
        return out

    def embed(self, ids):
        return self.tensor("token_embd.weight", VOCAB, self.width, spread=1.0)[ids]

    def head(self, x, tied=True, bias=False):
        x = self.norm(x, "output_norm", bias)
        return x @ (self.tensor("token_embd.weight", VOCAB, self.width) if tied else self.tensor("output.weight", VOCAB, self.width)).T


def silu(x):
    return x / (1 + np.exp(-x))


def swiglu(gate, up):
    return silu(gate) * up


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def stems(m):
    return [f"blk.{i}." for i in range(m.layers)]
