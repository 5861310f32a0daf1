"""Sparse attention by an indexer in NumPy, for make_families.py: DeepSeek V3.2, GLM-5 and MiniMax M3."""
import numpy as np

from numpy_latent import deepseek2, grouped_experts
from numpy_model import Model, stems, stored


def best(score, count, forced=()):
    """Indices of the `count` largest scores and of `forced` ones, which count too; of equal scores the first."""
    score = score.copy()
    score[list(forced)] = np.inf
    return np.sort(np.argsort(-score, kind="stable")[:count])


class Indexer:
    """Chooses keys for latent attention (arXiv 2512.02556, equation 1). kinds: for each layer 1, or 0 if it uses the last choice."""

    def __init__(self, m, halves, eps, kinds, turn, heads=3, dim=16, count=5):
        self.m, self.halves, self.eps, self.kinds, self.turn = m, halves, eps, list(kinds), turn
        self.heads, self.dim, self.count = heads, dim, count
        m.keys.update({"attention.indexer.head_count": heads, "attention.indexer.key_length": dim, "attention.indexer.top_k": count})
        if 0 in kinds:
            m.keys["attention.indexer.types"] = list(kinds)

    def __call__(self, x, low, s):
        if not self.kinds.pop(0):
            return self.chosen
        m, stem = self.m, s + "indexer."
        q = m.linear(low, stem + "attn_q_b", self.heads * self.dim).reshape(len(x), self.heads, self.dim)
        k = m.linear(x, stem + "attn_k", self.dim)
        k = k - k.mean(-1, keepdims=True)
        k = k / np.sqrt((k * k).mean(-1, keepdims=True) + np.float64(np.float32(self.eps)))
        k = k * m.tensor(stem + "k_norm.weight", self.dim, mean=1.0, spread=0.4) + m.tensor(stem + "k_norm.bias", self.dim, spread=0.5)
        q, k = m.rope(q, self.halves, **self.turn), stored(m.rope(k[:, None], self.halves, **self.turn)[:, 0])
        w = m.linear(x, stem + "proj", self.heads) / np.sqrt(self.heads * self.dim)
        self.chosen = [best(w[t] @ np.maximum(q[t] @ k[:t + 1].T, 0), self.count) for t in range(len(x))]
        return self.chosen


def deepseek32(ids):
    return deepseek2(ids, q_rank=20, kv_b=False, sigmoid=True, groups=4, groups_used=2, norm=True, scale=2.5, family="deepseek32",
                     indexer=lambda m, turn: Indexer(m, True, 1e-6, [1, 1, 1], turn))


def glm_dsa(ids):
    return deepseek2(ids, q_rank=20, kv_b=False, sigmoid=True, groups=1, groups_used=1, norm=True, scale=2.5, family="glm-dsa",
                     indexer=lambda m, turn: Indexer(m, False, 0.0, [1, 0, 1], turn))


def clamped_swiglu(gate, up):
    gate = np.minimum(gate, 7.0)
    return gate / (1 + np.exp(-1.702 * gate)) * (np.clip(up, -7.0, 7.0) + 1)


def head_norm(m, x, stem, dim):
    return m.normal(x, m.tensor(stem + ".weight", dim, mean=1.0, spread=0.4))


def chosen_blocks(m, x, s, dim, size, local, count):
    """For each token and KV head the positions that it attends to: those of the best blocks of keys."""
    q = m.linear(x, s + "indexer.q_proj", m.kv_heads * dim).reshape(len(x), m.kv_heads, dim)
    q = m.rope(head_norm(m, q, s + "indexer.q_norm", dim), True)
    k = head_norm(m, m.linear(x, s + "indexer.k_proj", dim), s + "indexer.k_norm", dim)
    k = stored(m.rope(k[:, None], True)[:, 0])
    seen = []
    for t in range(len(x)):
        newest = t // size
        forced = range(max(0, newest - local + 1), newest + 1)
        of_heads = []
        for g in range(m.kv_heads):
            score = k[:t + 1] @ q[t, g]
            largest = np.array([score[b * size:(b + 1) * size].max() for b in range(newest + 1)])
            blocks = best(largest, count, forced)
            of_heads.append([p for p in range(t + 1) if p // size in blocks])
        seen.append(of_heads)
    return seen


def minimax_m3(ids):
    m = Model("minimax-m3", layers=3, head_dim=24, rotary=8, layers_differ=True)
    dense = m.key("leading_dense_block_count", 1)
    m.key("expert_gating_func", 2)
    m.keys.update({"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32})
    dim, size = m.key("attention.indexer.key_length", 16), m.key("attention.indexer.block_size", 2)
    local, count = m.key("attention.indexer.local_blocks", 1), m.key("attention.indexer.top_k", 3)
    x = m.embed(ids)
    for i, s in enumerate(stems(m)):
        n = m.norm(x, s + "attn_norm")
        q, k, v = m.qkv(n, s)
        q, k = (m.rope(head_norm(m, y, f"{s}attn_{c}_norm", m.head_dim), True) for y, c in ((q, "q"), (k, "k")))
        if i < dense:
            a = m.attend(q, k, v)
        else:
            seen = chosen_blocks(m, n, s, dim, size, local, count)
            k, v, a = stored(k), stored(v), np.zeros_like(q)
            for t in range(len(x)):
                for h in range(m.heads):
                    g = h * m.kv_heads // m.heads
                    score = k[seen[t][g], g] @ q[t, h] / np.sqrt(m.head_dim)
                    p = np.exp(score - score.max())
                    a[t, h] = p / p.sum() @ v[seen[t][g], g]
            a = a.reshape(len(x), -1)
        x = x + m.linear(a, s + "attn_output", m.width)
        n = m.norm(x, s + "ffn_norm")
        if i < dense:
            gate, up = (m.linear(n, s + "ffn_" + c, m.ffn) for c in ("gate", "up"))
            x = x + m.linear(clamped_swiglu(gate, up), s + "ffn_down", m.width)
        else:
            x = x + grouped_experts(m, n, s, 6, 2, 32, True, 1, 1, True, 1.0, act=clamped_swiglu)
    return m, m.head(x, tied=False)
