#!/usr/bin/env python3
"""The tools' guarantees for scripts: equal answers on every path, clean stdout, exit statuses, signals.

usage: FORGE_BIN=DIR behaviour.py
"""
import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree

from lib_cli import BIN, GUARD, at, case, environment, files, finish, gguf, said, tiny, tiny_parts, tool, write

model = tiny()
GREEDY = ("--temp", "0")  # deterministic text
IDS = ",".join(str(i * 37 % 256) for i in range(150))


def run_json(*args, **options):
    run = tool("run", *args, "--json", **options)
    return json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr}


def logits(name, *args):
    path = at(name)
    run = tool("run", *args, "--dump-logits", path)
    case(f"{name} is written and stdout is empty", run.returncode == 0 and not run.stdout, run.stderr)
    with open(path, "rb") as data:
        return data.read()


def same_logits():
    whole = logits("whole.f32", model, "--tokens", IDS)
    case("one row of logits per token", len(whole) == 150 * 260 * 4, len(whole))
    case("prefill in chunks of 64 rows equals decode, bit for bit", whole == logits("d.f32", model, "--tokens", IDS, "--decode"))
    case("1 thread and 2 threads agree", whole == logits("t.f32", model, "--tokens", IDS, "--threads", 1)
         == logits("t.f32", model, "--tokens", IDS, "--threads", 2))
    case("--logits-last gives the last rows", whole[-7 * 260 * 4:] == logits("l.f32", model, "--tokens", IDS, "--logits-last", 7))
    case("--logits-last gives the same rows when decoding", whole[-7 * 260 * 4:] == logits("l.f32", model, "--tokens", IDS, "--logits-last", 7, "--decode"))
    case("--logits-last beyond the number of rows gives all", whole == logits("l.f32", model, "--tokens", IDS, "--logits-last", 999))
    case("another context size, the same bits", whole == logits("c.f32", model, "--tokens", IDS, "-c", 160))
    case("an existing file is replaced", whole == logits("d.f32", model, "--tokens", IDS))


def same_plan():
    expected = run_json(model, "--tokens", IDS, "-n", 20)["tokens"]
    case("20 tokens are generated", len(expected) == 20, expected)
    case("a second run, from the plan cache, gives the same tokens", run_json(model, "--tokens", IDS, "-n", 20)["tokens"] == expected)
    made = tool("compile", model, "-o", "tiny.plan", "--max-batch", 2)
    case("compile reports the plan's variants", made.returncode == 0 and b"decode2" in made.stderr and not made.stdout, made.stderr)
    case("a plan file gives the same tokens", run_json("tiny.plan", "--tokens", IDS, "-n", 20)["tokens"] == expected)
    os.rename(model, at("moved.gguf"))
    case("a plan gives the same tokens after its model was moved",
         run_json("tiny.plan", "--model", "moved.gguf", "--tokens", IDS, "-n", 20)["tokens"] == expected)
    os.rename(at("moved.gguf"), model)
    generic = tool("compile", model, "-o", "generic.plan", "--target", "cpu-generic,cpu")
    listed = json.loads(tool("inspect", "generic.plan", "--json").stdout)
    case("a plan for two targets has two programs", generic.returncode == 0 and len(listed["programs"]) == 2)
    case("a plan for two targets runs", run_json("generic.plan", "--tokens", IDS, "-n", 20)["tokens"] == expected)
    again = tool("run", "tiny.plan", "-c", 300, "--tokens", IDS, "-n", 20, "--json")
    lines = said(again)
    case("a context larger than the plan's is compiled again, with a note",
         json.loads(again.stdout)["tokens"] == expected and len(lines) == 1 and "compiled again" in lines[0], lines)
    case("without optional passes: the same tokens",
         run_json("tiny.plan", "--skip-pass", "fuse_glu", "--tokens", IDS, "-n", 20).get("tokens") == expected)


def text():
    plain = tool("run", model, "-p", "abc the", *GREEDY, "-n", 8)
    case("one closing line on stderr", plain.returncode == 0 and len(said(plain)) == 1
         and "tokens/s" in said(plain)[0], plain.stderr)
    by_name = tool("run", model, "--device", "cpu", "-p", "abc the", *GREEDY, "-n", 8)
    case("auto says why it does not use a GPU; an explicit CPU needs no reason",
         len(said(plain)) + (b"running on the CPU" in plain.stderr) == plain.stderr.count(b"\n")
         and by_name.stderr.count(b"\n") == 1 and by_name.stdout == plain.stdout, plain.stderr + by_name.stderr)
    write("p.txt", b"abc the\n")
    case("-f gives the same text", tool("run", model, "-f", "p.txt", *GREEDY, "-n", 8).stdout == plain.stdout)
    case("a prompt on standard input gives the same text", tool("run", model, *GREEDY, "-n", 8, stdin=b"abc the").stdout == plain.stdout)
    parsed = run_json(model, "-p", "abc the", *GREEDY, "-n", 8)
    case("JSON has the same text", parsed["text"].encode() == plain.stdout, parsed)
    case("JSON has the finish reason", parsed["finish_reason"] == "length" and len(parsed["tokens"]) == 8)
    raw = run_json(model, "--raw", "-p", "abc the", "-n", 1)
    case("a raw prompt is not templated", raw["prompt_tokens"] == 5 and parsed["prompt_tokens"] > 15, raw)
    with_system = run_json(model, "-p", "abc the", "--system", "be brief", "-n", 1)
    case("a system message makes the prompt longer", with_system["prompt_tokens"] > parsed["prompt_tokens"])
    case("-n 0 generates nothing", tool("run", model, "-p", "x", "-n", 0).stdout == b"")
    seeds = [run_json(model, "--raw", "-p", "x", "-n", 30, "--temp", 2, "--seed", s)["tokens"] for s in (1, 1, 2)]
    case("a seed fixes the sampled text", seeds[0] == seeds[1] != seeds[2])
    help_text = tool("run", "--help")
    case("--help goes to stdout", help_text.returncode == 0 and b"--tokens" in help_text.stdout and not help_text.stderr)
    version = tool("run", "--version")
    case("--version goes to stdout", version.returncode == 0 and version.stdout.startswith(b"forge-run "), version.stdout)


def ends():
    full = run_json(model, "--raw", "-p", "abc", *GREEDY, "--ignore-eos")
    case("generation ends when the context is full", full["prompt_tokens"] + len(full["tokens"]) == 256 + 1
         and full["finish_reason"] == "length", len(full.get("tokens", [])))
    metadata, tensors = tiny_parts()
    first = run_json(model, "--raw", "-p", "abc", *GREEDY, "-n", 3)["tokens"]
    metadata["tokenizer.ggml.eos_token_id"] = first[1]
    ended = run_json(write("eos.gguf", gguf(metadata, tensors)), "--raw", "-p", "abc", *GREEDY, "-n", 9)
    case("generation ends at the end token", ended["finish_reason"] == "stop" and ended["tokens"] == first[:2], ended)
    text = full["text"]
    stop = text[10:13]
    stopped = run_json(model, "--raw", "-p", "abc", *GREEDY, "--ignore-eos", "--stop", stop)
    case("a stop string is not part of the text", stopped["finish_reason"] == "stop" and stopped["text"] == text[:text.index(stop)],
         (stop, stopped.get("text", stopped)))


def start(*args, **options):
    return subprocess.Popen([os.path.join(BIN, "forge-run"), *map(str, args)], stdin=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, env=environment(), **options)


def signals():
    big = tiny("big.gguf", context=60000)
    for number in (signal.SIGINT, signal.SIGTERM):
        run = start(big, "--raw", "-p", "abc", "--ignore-eos", "-c", 60000, "-n", -1, stdout=subprocess.PIPE)
        run.stdout.read(1)
        run.send_signal(number)
        _, errors = run.communicate(timeout=GUARD)
        clean = errors.count(b"\n") == errors.count(b"note: running on the CPU: ")
        case(f"signal {number} ends the run cleanly", run.returncode == 128 + number and clean, (run.returncode, errors))
    before = files()
    run = start(big, "--tokens", ",".join(["7"] * 9000), "-c", 60000, "--decode", "--dump-logits", at("l.f32"))
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=GUARD)
    case("an interrupted write leaves no partial file", run.returncode in (0, 130) and (run.returncode == 0 or files() == before), run.returncode)
    run = start(big, "--raw", "-p", "abc", "--ignore-eos", "-c", 60000, "-n", -1, stdout=subprocess.PIPE)
    run.stdout.read(1)
    run.stdout.close()
    errors = run.stderr.read()
    case("a reader that closes the pipe ends the run without an error", run.wait(timeout=GUARD) == 0 and b"error" not in errors, (run.returncode, errors))
    run.stderr.close()


def streams():
    """Standard streams that are closed or full, and readers that have gone."""
    def closed(number, name, *args):
        return subprocess.run([os.path.join(BIN, "forge-" + name), *map(str, args)], env=environment(), timeout=GUARD,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if number == 1 else subprocess.PIPE,
                              stderr=subprocess.DEVNULL if number == 2 else subprocess.PIPE, preexec_fn=lambda: os.close(number))

    def whole(path):
        with open(path, encoding="utf-8") as file:
            return bool(json.load(file)["traceEvents"])
    trace = at("closed.json")
    run = closed(1, "run", model, "--tokens", "1,2,3", "--json", "-n", 2, "--profile-trace", trace)
    case("with stdout closed: one error line, and the answer in no file", run.returncode == 1
         and b"error[io]: cannot write to standard output" in run.stderr and not os.path.exists(trace), run.stderr)
    run = closed(2, "run", model, "--tokens", "1,2,3", "--json", "-n", 2, "--profile-trace", trace)
    case("with stderr closed: the answer, and a complete trace", run.returncode == 0 and json.loads(run.stdout)
         and whole(trace), (run.returncode, run.stdout))
    run = closed(0, "inspect", "tokenize", model)
    case("with stdin closed no other file is read in its place", run.returncode == 1 and run.stdout == b"", run)
    expected = tool("run", model, "-p", "abc", "-n", 4, *GREEDY)
    with open("/dev/full", "wb") as full:
        run = subprocess.run([os.path.join(BIN, "forge-run"), model, "-p", "abc", "-n", "4", *GREEDY], env=environment(), timeout=GUARD,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full)
    case("notes that cannot be written do not change the answer", run.returncode == 0 and run.stdout == expected.stdout, run)
    big = b"abc " * 200000
    for name, args, text in (("tokenize", [model], big),
                             ("render-chat", ["--template", write("plain.jinja", b"{{ messages[0].content }}")],
                              json.dumps({"messages": [{"role": "user", "content": big.decode()}]}).encode())):
        run = subprocess.Popen([os.path.join(BIN, "forge-inspect"), name, *args], env=environment(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        run.stdout.close()
        run.stdin.write(text)
        run.stdin.close()
        errors = run.stderr.read()
        case(f"{name}: a reader that has gone is not an error", run.wait(GUARD) == 0 and not errors, (run.returncode, errors))
        run.stderr.close()


def boxes_of(image):
    """(offset, bytes, first step, last step) of each box of an --arena-svg picture, read from its tooltip; checks its position."""
    boxes = []
    for box in xml.etree.ElementTree.fromstring(image).iter("{http://www.w3.org/2000/svg}rect"):
        if not box.get("class", "").startswith("box "):
            continue
        found = re.search(r"^(\d+) bytes .* at offset (\d+)\nsteps? (\d+)(?: to (\d+))?$", box[0].text, re.M)
        size, offset, first, last = (int(n or found[3]) for n in found.groups())
        boxes.append((offset, size, first, last, *(float(box.get(k)) for k in ("x", "y", "width", "height"))))
    return boxes


def arena_picture():
    tool("compile", model, "-o", "arena.plan", "--target", "cpu-generic", "--max-batch", 2)
    variants = json.loads(tool("inspect", "arena.plan", "--json", "--all").stdout)["programs"][0]["variants"]
    case("the plan has variants", len(variants) >= 2, variants)
    for variant in variants:
        run = tool("inspect", "arena.plan", "--arena-svg", "a.svg", "--variant", variant["name"])
        with open(at("a.svg"), "rb") as file:
            image = file.read()
        boxes = boxes_of(image)
        lost = [(step, place) for step, facts in enumerate(variant["steps"]) for place in facts["arena"]
                if not any(o <= place < o + n and first <= step <= last for o, n, first, last, *_ in boxes)]
        case(f"the arena of {variant['name']}: every buffer that a step uses is in a box that is live then",
             run.returncode == 0 and not run.stdout and len(boxes) >= 8 and not lost, (run.stderr, len(boxes), lost))
        case("boxes are inside the plot, and their height matches their bytes",
             all(x >= 84 and y >= 91.9 and y + h <= 572.1 and w > 0 and abs(h - 480 * n / variant["arena_bytes"]) < 0.02
                 for _, n, _, _, x, y, w, h in boxes), boxes)
        tool("inspect", "arena.plan", "--arena-svg", "b.svg", "--variant", variant["name"])
        with open(at("b.svg"), "rb") as file:
            case("the picture is the same bytes every time", file.read() == image)


def families():
    rows = json.loads(tool("inspect", "families", "--json").stdout)
    names = [row["name"] for row in rows["families"]]
    case("families are listed by name", names == sorted(names) and "llama" in names and "f16" in rows["types"], rows)
    listed = tool("inspect", "families").stdout.decode()
    case("the text output lists the same families", all(name in listed for name in names), listed)
    case("a family's name is on the first line, its models are indented", all(f"\n{name}  " in "\n" + listed for name in names), listed)
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "models.md")
    with open(page, "rb") as text:
        case("docs/models.md is up to date (forge-inspect families --markdown)",
             tool("inspect", "families", "--markdown").stdout == text.read())
    told = json.loads(tool("inspect", model, "--json").stdout)
    case("inspect names a model's family", told["family"]["name"] == "llama" and "Mistral" in told["family"]["models"], told.get("family"))
    case("inspect shows the shares of the types", b"100.0%" in tool("inspect", model).stdout)
    unknown = tool("run", write("odd.gguf", gguf({"general.architecture": "oddball"}, {})), "--tokens", "1,2", "-n", 1)
    case("an unknown family is refused by name, and where the supported ones are listed is said",
         unknown.returncode == 3 and b"oddball" in unknown.stderr and b"forge-inspect families" in unknown.stderr, unknown.stderr)


def other_tools():
    shown = tool("inspect", model)
    case("inspect shows a model", shown.returncode == 0 and b"llama.block_count" in shown.stdout
         and b"memory" in shown.stdout and not shown.stderr, shown.stderr)
    as_json = json.loads(tool("inspect", model, "--json", "--all").stdout)
    case("inspect shows a model as JSON", as_json["runs"] and as_json["metadata"]["llama.block_count"] == 2
         and len(as_json["tensors"]) == 21 and as_json["memory"]["total"] > 0, as_json)
    metadata, tensors = tiny_parts()
    metadata["general.architecture"] = "flapdoodle"
    unknown = tool("inspect", write("unknown.gguf", gguf(metadata, tensors)))
    case("a model that cannot run is shown with the reason", unknown.returncode == 0
         and b"cannot run it: error[model-unsupported]" in unknown.stdout, unknown.stdout + unknown.stderr)
    tool("compile", model, "-o", "x.plan")
    plan = tool("inspect", "x.plan")
    case("inspect shows a plan", plan.returncode == 0 and b"decode1" in plan.stdout and b"prefill" in plan.stdout
         and b"arena" in plan.stdout, plan.stdout)
    plan = json.loads(tool("inspect", "x.plan", "--json", "--all").stdout)
    variants = plan["programs"][0]["variants"]
    case("at most 6 steps per layer, the arena at its bound, weights read once",
         variants[0]["steps_a_layer"] <= 6 and variants[0]["arena_ratio"] <= 1.001 and variants[0]["read_ratio"] <= 1.05,
         {k: v for k, v in variants[0].items() if k != "steps"})
    devices = json.loads(tool("inspect", "devices", "--json").stdout)
    case("inspect devices shows the CPU", devices["cpu"]["target"].startswith("cpu-") and devices["cpu"]["threads"] > 0)
    ids = json.loads(tool("inspect", "tokenize", model, stdin=b"abc the").stdout)
    case("inspect tokenize gives ids", len(ids) == 5 and ids[-1] == 259, ids)
    case("tokenize --special recognises control tokens", json.loads(tool("inspect", "tokenize", model, "--special", stdin=b"<|end|>").stdout) == [257])
    shown = tool("run", model, "-p", "a\033b", "-n", 2, *GREEDY, "--system", "Be", "--show-prompt")
    text = tool("run", model, "-p", "a\033b", "-n", 2, *GREEDY, "--system", "Be")
    case("--show-prompt prints the prompt as the model gets it on stderr, with escapes",
         shown.stdout == text.stdout and b"the prompt has " in shown.stderr and b"\na\\x1bb<|end|>" in shown.stderr, shown.stderr)
    tokenizer = json.loads(tool("inspect", model, "--json").stdout)["tokenizer"]
    case("inspect shows the tokenizer", tokenizer["kind"] == "byte-level BPE, words as 'gpt-2'" and tokenizer["control"] == [257],
         tokenizer)
    rows = json.loads(tool("bench", model, "-p", "8,16", "-n", 4, "-d", "0,32", "-b", "1,2", "-r", 2, "-o", "json").stdout)
    wanted = {"model_filename", "n_threads", "n_prompt", "n_gen", "n_depth", "avg_ts", "stddev_ts"}
    case("bench: a row per combination, with llama-bench's names",
         len(rows) == 12 and all(wanted <= set(row) and row["avg_ts"] > 0 for row in rows), rows[:1])
    table = tool("bench", model, "-p", 8, "-n", 4, "-r", 1)
    case("bench: a table", table.stdout.count(b"\n") == 4 and b"pp8" in table.stdout and b"tg4" in table.stdout, table.stdout)
    csv = tool("bench", model, "-p", 8, "-n", 0, "-r", 1, "-o", "csv")
    case("bench: CSV", csv.stdout.count(b"\n") == 2 and csv.stdout.startswith(b"model_filename,"), csv.stdout)
    names = tool("compile", "--list-passes").stdout.decode()
    case("inspect lists the passes", "fuse_qkv" in names and "optional" in names, names)
    dumped = tool("compile", model, "--dump-ir", at("ir"), "--dump-dot", at("dot"))
    case("compile writes dumps", dumped.returncode == 0 and len(os.listdir(at("ir"))) > 5
         and any(name.endswith(".dot") for name in os.listdir(at("dot"))), dumped.stderr)


if __name__ == "__main__":
    for group in (same_logits, same_plan, text, ends, signals, streams, arena_picture, families, other_tools):
        group()
    finish()
