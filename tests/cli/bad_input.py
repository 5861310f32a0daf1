#!/usr/bin/env python3
"""Bad input gives one line on stderr, the documented exit status, nothing on stdout and no output file.

usage: FORGE_BIN=DIR bad_input.py
"""
import os
import resource

from lib_cli import CACHE, FOLDER, GUARD, SANITIZED, at, case, environment, files, finish, gguf, said, skip, tiny, tiny_parts, tool, write

USAGE, MODEL, DEVICE, MEMORY, RUN = 2, 3, 4, 5, 1


def refused(name, status, code, command, *args, contains=(), **options):
    """Checks one run: it must be refused with `status` and an error with code `code`."""
    before = files()
    run = tool(command, *args, **options)
    text = run.stderr.decode(errors="replace")
    lines = text.splitlines()
    problems = []
    if run.returncode != status:
        problems.append(f"exit {run.returncode}, not {status}")
    if len(lines) != 1:
        problems.append(f"{len(lines)} lines on stderr")
    if not text.startswith(f"error[{code}]: "):
        problems.append(f"no error[{code}]")
    problems += [f"'{word}' is not named" for word in contains if word not in text]
    if run.stdout:
        problems.append(f"stdout {run.stdout[:40]!r}")
    if files() != before:
        problems.append(f"left {sorted(set(files()) - set(before))}")
    case(f"{name}: forge-{command} {' '.join(map(str, args))[:100]}", not problems, f"{'; '.join(problems)}: {text[:300]}")


model = tiny()
metadata, tensors = tiny_parts()
image = gguf(metadata, tensors)


def variant(name, changes=None, drop=(), tensor_changes=None, tensor_drop=()):
    """Builds the small model with changed metadata or tensors."""
    meta = {k: v for k, v in {**metadata, **(changes or {})}.items() if k not in drop}
    parts = {k: v for k, v in {**tensors, **(tensor_changes or {})}.items() if k not in tensor_drop}
    return write(name, gguf(meta, parts))


def bad_files():
    for command in ("run", "compile", "inspect", "bench"):
        refused("missing file", RUN, "io", command, at("absent.gguf"), contains=["absent.gguf"])
        refused("a directory", RUN, "io", command, FOLDER)
        refused("an empty file", RUN, "io", command, write("empty.gguf", b""))
        refused("not a GGUF", MODEL, "model-format", command, write("text.gguf", b"hello world, this is text\n" * 9))
    refused("version 1", MODEL, "model-unsupported", "run", write("v1.gguf", b"GGUF\1\0\0\0" + image[8:]), "-p", "x")
    refused("absurd tensor count", MODEL, "model-format", "run",
            write("count.gguf", image[:8] + b"\xff" * 8 + image[16:]), "-p", "x")
    refused("absurd metadata count", MODEL, "model-format", "run",
            write("count.gguf", image[:16] + b"\xff" * 8 + image[24:]), "-p", "x")
    refused("absurd string", MODEL, "model-format", "run",
            write("string.gguf", image[:24] + b"\xff" * 8 + image[32:]), "-p", "x")
    for i in range(40):
        cut = len(image) * i // 40 + (i > 0)
        code = ("io" if cut == 0 else "model-format")
        status = RUN if cut == 0 else MODEL
        refused(f"truncated at {cut}", status, code, "run", write("cut.gguf", image[:cut]), "-p", "x", "-n", 1)


def bad_models():
    def unsupported(name, *words, **changes):
        refused(name, MODEL, "model-unsupported", "run", variant("bad.gguf", **changes), "-p", "x", contains=words)

    def contradicts(name, *words, **changes):
        refused(name, MODEL, "model-format", "run", variant("bad.gguf", **changes), "-p", "x", contains=words)

    unsupported("unknown family", "flapdoodle", changes={"general.architecture": "flapdoodle"})
    contradicts("no family", drop=["general.architecture"])
    contradicts("no head count", drop=["llama.attention.head_count"])
    contradicts("missing tensor", "blk.1.ffn_up.weight", tensor_drop=["blk.1.ffn_up.weight"])
    contradicts("misshapen tensor", "blk.0.attn_k.weight",
                tensor_changes={"blk.0.attn_k.weight": ((32, 8), b"\0" * 32 * 8 * 4)})
    contradicts("zero layers", changes={"llama.block_count": 0})
    contradicts("more layers than tensors", changes={"llama.block_count": 9})
    contradicts("absurd layers", changes={"llama.block_count": 4000000000})
    contradicts("absurd width", changes={"llama.embedding_length": 4000000000})
    contradicts("family of another type", changes={"general.architecture": 7})
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    contradicts("YaRN without a number", "yarn_beta_fast", changes=yarn | {"llama.rope.scaling.yarn_beta_fast": float("nan")})
    contradicts("YaRN with nothing", "YaRN", changes=yarn | {"llama.rope.scaling.yarn_beta_slow": 0.0})
    contradicts("absurd heads", "70000", changes={"llama.attention.head_count": 70000, "llama.attention.key_length": 16})
    contradicts("a scale that no product survives", "attention.scale", changes={"llama.attention.scale": 3e38})
    refused("weights that are NaN", MODEL, "model-format", "run",
            variant("bad.gguf", tensor_changes={"output_norm.weight": ((32,), b"\xff" * 128)}), "--device", "cpu", "-p", "x",
            contains=["NaN or infinite"])
    wide = {f"blk.{layer}.attn_{part}.weight": ((1026, 32) if part == "output" else (32, 1026), b"\0" * 4 * 32 * 1026)
            for layer in range(2) for part in ("q", "k", "v", "output")}
    unsupported("heads wider than any kernel", "1026", tensor_changes=wide,
                changes={"llama.attention.head_count": 1, "llama.attention.key_length": 1026, "llama.attention.value_length": 1026})
    refused("unknown tensor type", MODEL, "model-unsupported", "run",
            variant("bad.gguf", tensor_changes={"output_norm.weight": ((32,), b"\0" * 128, 77)}), "-p", "x")
    refused("a type without a kernel", MODEL, "model-unsupported", "run",
            variant("bad.gguf", tensor_changes={"output.weight": ((32, 260), b"\0" * 32 * 260, 24)}), "-p", "x")
    refused("broken vocabulary", MODEL, "tokenizer", "run",
            variant("bad.gguf", changes={"tokenizer.ggml.token_type": [1, 1]}), "-p", "x")
    refused("unknown tokenizer", MODEL, "tokenizer", "run",
            variant("bad.gguf", changes={"tokenizer.ggml.model": "abacus"}), "-p", "x", contains=["abacus"])
    refused("no vocabulary", MODEL, "tokenizer", "run", variant("bad.gguf", drop=["tokenizer.ggml.model"]), "-p", "x")
    more = metadata["tokenizer.ggml.tokens"] + ["abc"]
    refused("a larger vocabulary than the embedding", MODEL, "tokenizer", "run",
            variant("bad.gguf", changes={"tokenizer.ggml.tokens": more, "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 1, 1, 4]}),
            "--raw", "-p", "abc")
    refused("broken template", MODEL, "template", "run",
            variant("bad.gguf", changes={"tokenizer.chat_template": "{% for %}"}), "-p", "x")
    refused("template that refuses", MODEL, "template", "run",
            variant("bad.gguf", changes={"tokenizer.chat_template": "{{ raise_exception('no thanks') }}"}), "-p", "x",
            contains=["no thanks"])
    refused("endless template", MODEL, "template", "run",
            variant("bad.gguf", changes={"tokenizer.chat_template":
                    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"}), "-p", "x")


    conversation = b'{"messages": [{"role": "user", "content": "x"}]}'
    for name, source, where in (("an endless template", "a\n{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "line 2, column"),
                                ("a recursive template", "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "line 1, column"),
                                ("gigabytes of output", "{% set s = 'x' * 999999 %}{% for a in range(99999) %}{{ s }}{% endfor %}", "line 1, column"),
                                ("gigabytes at once", "\n\n{{ 'x' * 9999999999 }}", "line 3, column"),
                                ("an unknown filter", "{{ messages|nonsense }}", "line 1, column 13"),
                                ("an unknown tag", "{{ 1 }}\n {% nonsense %}", "line 2, column"),
                                ("an open tag", "{% if 1 %}", "line 1, column")):
        refused(name, MODEL, "template", "inspect", "render-chat", "--template", write("bad.jinja", source.encode()),
                stdin=conversation, contains=[where])


def bad_flags():
    refused("no model", USAGE, "usage", "run")
    refused("unknown flag", USAGE, "usage", "run", model, "--frobnicate", contains=["--frobnicate"])
    for flag, value in (("-n", "abc"), ("-n", "-2"), ("-n", "-5"), ("-n", "1.5"), ("-n", "99999999999999999999"), ("-n", ""),
                        ("-c", "0"), ("-c", "-1"), ("-c", "999999999"), ("--temp", "x"), ("--temp", "-1"),
                        ("--temp", "nan"), ("--top-p", "2"), ("--min-p", "-0.1"), ("--top-k", "-1"),
                        ("--threads", "0"), ("--threads", "100000"), ("--seed", "1e3"), ("--logits-last", "0")):
        refused("a bad number", USAGE, "usage", "run", model, "-p", "x", flag, value)
    refused("a value is missing", USAGE, "usage", "run", model, "-p")
    refused("given twice", USAGE, "usage", "run", model, "-p", "x", "-p", "y")
    refused("two prompts", USAGE, "usage", "run", model, "-p", "x", "-f", model)
    refused("two models", USAGE, "usage", "run", model, model)
    refused("unknown device", USAGE, "usage", "run", model, "-p", "x", "--device", "abacus")
    refused("--model without a plan", USAGE, "usage", "run", model, "-p", "x", "--model", model)
    refused("unknown pass", USAGE, "usage", "run", model, "-p", "x", "--skip-pass", "no_such_pass",
            contains=["no_such_pass"])
    refused("--system with --raw", USAGE, "usage", "run", model, "-p", "x", "--raw", "--system", "y")
    for device in ("hip:0", "cuda:1", "hip"):
        refused("no GPU", DEVICE, "device", "run", model, "-p", "x", "--device", device, contains=[device])
    refused("unknown target", USAGE, "usage", "compile", model, "--target", "gfx9999", contains=["gfx9999"])
    for kind in ("q4_0", "fp8", "float"):
        refused("KV type", USAGE, "usage", "compile", model, "--kv-type", kind, contains=[kind])
    refused("unknown format", USAGE, "usage", "bench", model, "-o", "xml")
    refused("a bad list", USAGE, "usage", "bench", model, "-p", "1,,2")
    refused("a bad list", USAGE, "usage", "bench", model, "-t", "0")
    refused("no command or file", USAGE, "usage", "inspect")
    refused("no template", USAGE, "usage", "inspect", "render-chat")
    for name, line in (("no JSON", b'{"x'), ("no object", b"[]"), ("no template", b'{"completion": "a"}'),
                       ("no text", b'{"template_source": "x"}'), ("deep", b"[" * 100000 + b"]" * 100000),
                       ("pieces that are no texts", b'{"template_source": "x", "chunks": [1]}')):
        refused(f"an answer's line with {name}", USAGE, "usage", "inspect", "parse-answers", stdin=line + b"\n",
                contains=["line 1: "])
    for name, line in (("no JSON", b'{"regex'), ("no text", b'{"regex": "a"}'), ("no constraint", b'{"text": "a"}'),
                       ("a text that is none", b'{"regex": "a", "text": 1, "seed": 1}'),
                       ("deep", b"[" * 100000 + b"]" * 100000),
                       ("a deep schema", b'{"text": "", "schema": {"const": ' + b"[" * 100000 + b"]" * 100000 + b"}}")):
        refused(f"a constraint's line with {name}", USAGE, "usage", "inspect", "check-constraints", model,
                stdin=line + b"\n", contains=["line 1 "])


def bad_prompts():
    refused("longer than the context", RUN, "prompt", "run", model, "-c", 16, "--raw", "-p", "abcdefghijklmnopqrstuvwxyz",
            contains=["26", "16"])
    refused("longer than the context", RUN, "prompt", "run", model, "-c", 4, "--tokens", "1,2,3,4,5", "--json")
    refused("empty prompt", RUN, "prompt", "run", model, "--raw", "-p", "")
    refused("empty standard input", RUN, "prompt", "run", model, "--raw")
    refused("no UTF-8", RUN, "prompt", "run", model, "-f", write("bytes.txt", b"\xff\xfe\xfd"))
    refused("missing prompt file", RUN, "io", "run", model, "-f", at("absent.txt"), contains=["absent.txt"])
    for tokens in ("", "1,,2", "1,x", "1;2", "-1", "1.5", "260", "99999999999999999999"):
        refused("bad tokens", USAGE, "usage", "run", model, "--tokens", tokens, "--json")


def bad_outputs():
    refused("logits without tokens", USAGE, "usage", "run", model, "--dump-logits", at("l.f32"))
    refused("logits and -n", USAGE, "usage", "run", model, "--tokens", "1,2", "--dump-logits", at("l.f32"), "-n", 3)
    refused("logits into a directory", USAGE, "usage", "run", model, "--tokens", "1,2", "--dump-logits", FOLDER)
    refused("logits into a device", USAGE, "usage", "run", model, "--tokens", "1,2", "--dump-logits", "/dev/null")
    refused("logits into nowhere", RUN, "io", "run", model, "--tokens", "1,2", "--dump-logits", at("no/such/l.f32"))
    refused("a plan into a directory", USAGE, "usage", "compile", model, "-o", FOLDER)
    refused("a plan into nowhere", RUN, "io", "compile", model, "-o", at("no/such/x.plan"))
    refused("tokens beyond the context leave no file", RUN, "prompt", "run", model, "-c", 2, "--tokens", "1,2,3",
            "--dump-logits", at("l.f32"))
    tool("compile", model, "-o", "drawn.plan", "--target", "cpu-generic")
    refused("a picture into a directory", USAGE, "usage", "inspect", "drawn.plan", "--arena-svg", FOLDER)
    refused("a picture into a device", USAGE, "usage", "inspect", "drawn.plan", "--arena-svg", "/dev/null")
    refused("a picture into nowhere", RUN, "io", "inspect", "drawn.plan", "--arena-svg", at("no/such/a.svg"))
    refused("a picture of a model", USAGE, "usage", "inspect", model, "--arena-svg", at("a.svg"), contains=["forge-compile"])
    refused("a picture of nothing", RUN, "io", "inspect", at("absent.plan"), "--arena-svg", at("a.svg"))
    refused("a picture of an unknown variant", USAGE, "usage", "inspect", "drawn.plan", "--arena-svg", at("a.svg"),
            "--variant", "decode99", contains=["decode99", "decode1"])
    refused("a variant without a picture", USAGE, "usage", "inspect", "drawn.plan", "--variant", "decode1",
            contains=["--arena-svg"])
    refused("nothing to measure", USAGE, "usage", "bench", model, "-p", 0, "-n", 0)
    with open(model, "rb") as file:
        whole = file.read()
    tool("compile", model, "-o", "bound.plan", "--target", "cpu-generic")
    for name, *command in (("a plan", "compile", model, "-o", model), ("a plan by a link", "compile", model, "-o", at("link.gguf")),
                           ("logits", "run", model, "--tokens", "1,2", "--dump-logits", model),
                           ("logits of a plan", "run", at("bound.plan"), "--tokens", "1,2", "--dump-logits", model),
                           ("a trace", "run", model, "--tokens", "1,2", "--json", "--profile-trace", model),
                           ("a trace of a plan", "run", at("bound.plan"), "--tokens", "1,2", "--json", "--profile-trace", model),
                           ("a benchmark's trace", "bench", model, "-p", 8, "-n", 0, "--profile-trace", model)):
        if "link" in name:
            os.symlink(model, at("link.gguf"))
        refused(f"{name} over its model", USAGE, "usage", *command)
    with open(model, "rb") as file:
        case("the model file is unchanged", file.read() == whole)
    for option in ("--arena-svg", "--graph-svg"):
        refused(f"{option} over the plan", USAGE, "usage", "inspect", "drawn.plan", option, "drawn.plan")
    refused("two outputs in one file", USAGE, "usage", "run", model, "--tokens", "1,2", "--dump-logits", at("l.f32"),
            "--profile-trace", at("l.f32"))
    with open("/dev/full", "wb") as full:
        import subprocess

        from lib_cli import BIN
        run = subprocess.run([os.path.join(BIN, "forge-run"), model, "--raw", "-p", "abc", "-n", "4"], stdout=full,
                             stderr=subprocess.PIPE, env=environment(), timeout=GUARD)
        case("stdout is full: an error", run.returncode == 1 and len(said(run)) == 1
             and said(run)[0].startswith("error[io]: "), run.stderr)


def bad_plans():
    plan = at("tiny.plan")
    case("a plan is written", tool("compile", model, "-o", plan).returncode == 0)
    whole = open(plan, "rb").read()
    for i in range(40):
        place = len(whole) * i // 40
        flipped = bytearray(whole)
        flipped[place] ^= 1 << i % 8
        damaged = write("damaged.plan", bytes(flipped))
        # A flipped magic is no plan any more, and no GGUF either.
        code = "plan" if place >= 8 else "model-format"
        refused(f"byte {place} flipped", MODEL, code, "run", damaged, "--tokens", "1,2", "--json")
    for i in range(20):
        cut = 8 + (len(whole) - 8) * i // 20
        refused(f"plan truncated at {cut}", MODEL, "plan", "run", write("damaged.plan", whole[:cut]), "-p", "x")
    refused("bytes behind a plan", MODEL, "plan", "run", write("damaged.plan", whole + b"x"), "-p", "x")
    other = tiny("other.gguf", context=128)
    refused("a plan of another model", MODEL, "plan", "run", plan, "--model", other, "-p", "x", contains=["other.gguf"])
    moved = tiny("moved.gguf")
    tool("compile", moved, "-o", at("moved.plan"))
    os.remove(moved)
    refused("the model has gone", MODEL, "plan", "run", at("moved.plan"), "-p", "x", contains=["--model"])
    refused("a model that is no model", MODEL, "model-format", "run", plan, "--model", plan, "-p", "x")


def bad_caches():
    refused("cache size", USAGE, "usage", "run", model, "-p", "x", env=environment(FORGE_CACHE_MAX_BYTES="lots"))
    blocked = environment()
    blocked["FORGE_CACHE_DIR"] = write("a_file", b"") + "/cache"
    refused("unwritable cache", RUN, "cache", "compile", model, env=blocked)
    run = tool("run", model, "--raw", "-p", "abc", "-n", 2, env=blocked)
    lines = run.stderr.decode().splitlines()
    case("an unwritable cache is a warning", run.returncode == 0 and lines and lines[0].startswith("warning[cache]: "), lines)
    # A damaged entry: said in one line, then rebuilt.
    tool("run", model, "--raw", "-p", "abc", "-n", 2)
    for name in os.listdir(CACHE):
        if name.endswith(".plan"):
            path = os.path.join(CACHE, name)
            data = bytearray(open(path, "rb").read())
            data[len(data) // 2] ^= 16
            open(path, "wb").write(data)
    first, second = (tool("run", model, "--raw", "-p", "abc", "-n", 2, "--temp", 0) for _ in range(2))
    case("a damaged entry is reported and rebuilt",
         first.returncode == 0 and first.stderr.count(b"warning[") == 1 and second.stderr.count(b"warning[") == 0
         and first.stdout == second.stdout, first.stderr + second.stderr)


def too_large():
    if SANITIZED:
        return skip("a model that does not fit", "a sanitizer's shadow memory is beyond every limit")
    large = tiny("large.gguf", context=16000000)
    limit = 1 << 30

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    refused("does not fit", MEMORY, "memory", "run", large, "-c", 16000000, "-p", "x", preexec_fn=limited,
            contains=["GiB", "-c "])


if __name__ == "__main__":
    for group in (bad_files, bad_models, bad_flags, bad_prompts, bad_outputs, bad_plans, bad_caches, too_large):
        group()
    finish()
