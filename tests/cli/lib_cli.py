"""Shared code of the command-line tests: running tools, building a small model, counting cases.

The tools are in $FORGE_BIN. Every test run has its own cache and folder, so tests cannot affect each other.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = os.environ.get("FORGE_BIN") or sys.exit("FORGE_BIN is not set: the folder of the built tools")
GUARD = 600  # seconds after which a tool counts as hanging, on the slowest machine
SANITIZED = os.environ.get("FORGE_SANITIZED") == "1"
FOLDER = tempfile.mkdtemp(prefix="forge-cli-")
CACHE = os.path.join(FOLDER, "cache")

_passed = _failed = _skipped = 0


def case(name, ok, text=""):
    """Counts one case, and prints it if it failed."""
    global _passed, _failed
    if ok:
        _passed += 1
    else:
        _failed += 1
        print(f"FAIL {name}: {text}", flush=True)
    return ok


def skip(name, why):
    """Counts a case that this machine cannot run; tests/count_cases.py reports it to tools/check."""
    global _skipped
    _skipped += 1
    print(f"skipped: {name}: {why}", flush=True)


def finish():
    """Prints the counts and exits. No cases at all is a failure; only skipped cases is exit status 77."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    print(f"{_passed} passed, {_failed} failed, {_skipped} skipped")
    sys.exit(0 if _passed and not _failed else 77 if _skipped and not _failed else 1)


def at(name):
    return os.path.join(FOLDER, name)


def environment(**changes):
    """The environment without variables that are options of the tools (FORGE_NAME is an option of forge-serve)."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("FORGE_")}
    return {**env, "FORGE_CACHE_DIR": CACHE, **changes}


def tool(name, *args, stdin=b"", timeout=GUARD, env=None, **options):
    """Runs forge-NAME with `stdin` (bytes). Returns a CompletedProcess with bytes."""
    return subprocess.run([os.path.join(BIN, "forge-" + name), *map(str, args)], input=stdin, capture_output=True,
                          timeout=timeout, env=env or environment(), cwd=FOLDER, **options)


def said(run):
    """Lines on stderr, except those about the machine: why no GPU is used, and that there are few cores."""
    return [line for line in run.stderr.decode().splitlines()
            if not re.match(r"note: (running on the CPU: |\d+ threads take turns on )", line)]


def files():
    """All files in the test's folder outside the cache, to see what a run left behind."""
    return sorted(os.path.join(folder, name) for folder, folders, names in os.walk(FOLDER)
                  if not folder.startswith(CACHE) for name in names)


# ---- a small GGUF model; source of the format: ggml/docs/gguf.md ----

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def _string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value):
    if isinstance(value, tuple):  # type number and bytes
        return value
    if isinstance(value, bool):
        return BOOL, struct.pack("<?", value)
    if isinstance(value, int) and value < 0:
        return I32, struct.pack("<i", value)
    if isinstance(value, int):
        return U32, struct.pack("<I", value)
    if isinstance(value, float):
        return F32, struct.pack("<f", value)
    if isinstance(value, (str, bytes)):
        return STRING, _string(value)
    kind = STRING if value and isinstance(value[0], str) else I32
    body = b"".join(_string(v) if kind == STRING else struct.pack("<i", v) for v in value)
    return ARRAY, struct.pack("<IQ", kind, len(value)) + body


def gguf_entry(key, value):
    kind, body = _value(value)
    return _string(key) + struct.pack("<I", kind) + body


def gguf(metadata, tensors):
    """GGUF bytes. metadata: dict; tensors: name -> (dims innermost first, bytes of f32), or (dims, bytes, type number)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(gguf_entry(*entry) for entry in metadata.items())
    data = b""
    for name, (dims, body, *kind) in tensors.items():
        head += _string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", kind[0] if kind else 0, len(data))
        data += body + b"\0" * (-len(body) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def byte_alphabet():
    """The printable character that GPT-2's byte-level BPE uses for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(spare)) for b in range(256)]


class Random:
    """xorshift64: small random weights, equal on every machine."""

    def __init__(self, seed=1):
        self.state = seed * 0x9E3779B97F4A7C15 % 2**64 or 1

    def next(self):
        x = self.state
        x ^= x << 13 & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 7
        x ^= x << 17 & 0xFFFFFFFFFFFFFFFF
        self.state = x
        return x

    def floats(self, count, scale):
        return struct.pack(f"<{count}f", *((self.next() % 2001 / 1000 - 1) * scale for _ in range(count)))


TEMPLATE = ("{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}")


def tiny_parts(seed=1, context=256, layers=2, head_dim=16):
    """Metadata and tensors of a small llama with a byte-level vocabulary, for the caller to change."""
    width, ffn, kv_heads = 32, 64, 1
    heads = width // head_dim
    tokens = byte_alphabet() + ["<|start|>", "<|end|>", "Ġt", "he"]
    metadata = {
        "general.architecture": "llama", "general.name": "tiny", "llama.block_count": layers,
        "llama.context_length": context, "llama.embedding_length": width, "llama.feed_forward_length": ffn,
        "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": head_dim,
        "llama.rope.freq_base": 10000.0, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 1, 1],
        "tokenizer.ggml.merges": ["Ġ t", "h e"], "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257, "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE,
    }
    random = Random(seed)
    tensors = {}

    def weight(name, cols, rows):
        tensors[name] = ((cols, rows), random.floats(cols * rows, 0.3))

    def norm(name):
        tensors[name] = ((width,), struct.pack(f"<{width}f", *[1.0] * width))

    weight("token_embd.weight", width, len(tokens))
    for i in range(layers):
        norm(f"blk.{i}.attn_norm.weight")
        weight(f"blk.{i}.attn_q.weight", width, heads * head_dim)
        weight(f"blk.{i}.attn_k.weight", width, kv_heads * head_dim)
        weight(f"blk.{i}.attn_v.weight", width, kv_heads * head_dim)
        weight(f"blk.{i}.attn_output.weight", heads * head_dim, width)
        norm(f"blk.{i}.ffn_norm.weight")
        weight(f"blk.{i}.ffn_gate.weight", width, ffn)
        weight(f"blk.{i}.ffn_up.weight", width, ffn)
        weight(f"blk.{i}.ffn_down.weight", ffn, width)
    norm("output_norm.weight")
    weight("output.weight", width, len(tokens))
    return metadata, tensors


def write(name, data):
    path = at(name)
    with open(path, "wb") as out:
        out.write(data)
    return path


def tiny(name="tiny.gguf", **options):
    return write(name, gguf(*tiny_parts(**options)))
