#!/usr/bin/env python3
"""Models split into several files: every tool takes any part, results are the whole model's, and a part that is missing
or does not belong to the others is one line that names it.

usage: FORGE_BIN=DIR split.py [SHARED]     SHARED has conformance/ and families/; $FORGE_SHARED instead, where that is set
"""
import json
import os
import shutil
import struct
import sys

from lib_cli import SANITIZED, at, case, files, finish, gguf, said, skip, tiny_parts, tool, write

MODEL, USAGE = 3, 2
IDS = ",".join(str(i * 37 % 256) for i in range(70))
CASES = ("llama-q4_k", "gemma3-q4_k_m", "qwen3moe-q4_k_m", "gptoss-mxfp4")


def part(number, count, stem="m"):
    return f"{stem}-{number:05}-of-{count:05}.gguf"


def u16(value):
    return 2, struct.pack("<H", value)


def keys(index, count, tensors):
    return {"split.no": u16(index), "split.count": u16(count), "split.tensors.count": (5, struct.pack("<i", tensors))}


def split(folder, metadata, tensors, counts=(3, 5, 99)):
    """Writes the model in parts of `counts` tensors; returns their paths."""
    os.makedirs(at(folder), exist_ok=True)
    names, paths = list(tensors), []
    for index, count in enumerate(counts):
        mine = {name: tensors[name] for name in names[:count]}
        names = names[count:]
        paths.append(write(os.path.join(folder, part(index + 1, len(counts))),
                           gguf({**(metadata if index == 0 else {}), **keys(index, len(counts), len(tensors))}, mine)))
    return paths


def read_gguf(data):
    """Metadata and tensors of a GGUF file, as gguf() of lib_cli takes them."""
    place = 24
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def take(form):
        nonlocal place
        value, = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal place
        length = take("Q")
        place += length
        return data[place - length:place]

    def pass_by(kind):
        nonlocal place
        if kind == 8:
            text()
        elif kind == 9:
            element, length = take("I"), take("Q")
            for _ in range(length):
                pass_by(element)
        else:
            place += sizes[kind]

    tensor_count, entries = struct.unpack_from("<QQ", data, 8)
    metadata, rows = {}, []
    for _ in range(entries):
        key, kind, begin = text(), take("I"), place
        pass_by(kind)
        metadata[key] = kind, data[begin:place]
    for _ in range(tensor_count):
        name, dims = text(), [take("Q") for _ in range(take("I"))]
        rows.append((name, dims, take("I"), take("Q")))
    start = (place + 31) // 32 * 32
    ends = sorted([row[3] for row in rows] + [len(data) - start])
    # With the padding behind it, a tensor's bytes end where the next one's begin.
    return metadata, {name: (dims, data[start + offset:start + ends[ends.index(offset) + 1]], kind)
                      for name, dims, kind, offset in rows}


def refused(name, contains, command, *args, status=MODEL):
    """The run ends with `status` and one line that has all of `contains`; nothing is written."""
    before = files()
    run = tool(command, *args)
    lines = run.stderr.decode().splitlines()
    case(f"{name}: forge-{command}", run.returncode == status and len(lines) == 1 and lines[0].startswith("error[")
         and all(word in lines[0] for word in contains) and not run.stdout and files() == before, (run.returncode, lines))


def logits(model, *args):
    path = at("logits")
    run = tool("run", model, "--dump-logits", path, "--device", "cpu", *args)
    case(f"{model} {args[2:]} gives logits", run.returncode == 0 and not said(run), run.stderr)
    with open(path, "rb") as data:
        return data.read()


def run_json(*args, **options):
    run = tool("run", *args, "--json", "--device", "cpu", **options)
    return json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr}


metadata, tensors = tiny_parts(context=600)
whole = write("whole.gguf", gguf(metadata, tensors))
first, second, third = split("parts", metadata, tensors)


def same_answers():
    expected = logits(whole, "--tokens", IDS)
    for path in (first, second, third):
        case(f"{path}: the whole model's logits", logits(path, "--tokens", IDS) == expected)
    case("when decoding too", logits(second, "--tokens", IDS, "--decode") == logits(whole, "--tokens", IDS, "--decode"))
    text = tool("run", third, "--raw", "-p", "abc", "-n", 8, "--temp", 0, "--device", "cpu")
    case("the same text", text.returncode == 0 and text.stdout == tool("run", whole, "--raw", "-p", "abc", "-n", 8, "--temp", 0,
                                                                       "--device", "cpu").stdout, text.stderr)
    bench = tool("bench", second, "-p", 8, "-n", 2, "-r", 1, "-o", "json", "--device", "cpu")
    rows = json.loads(bench.stdout) if bench.returncode == 0 else [{}]
    case("forge-bench measures it, and counts all files", rows[0].get("model_size") == sum(map(os.path.getsize, (first, second, third)))
         and rows[0]["model_filename"] == first, bench.stderr)
    one = write("one.gguf", gguf({**metadata, **keys(0, 1, len(tensors))}, tensors))
    joined = write("joined.gguf", gguf({**metadata, **keys(0, 0, len(tensors))}, tensors))
    for path in (one, joined):
        case("a whole model with the keys of a split one", logits(path, "--tokens", IDS) == expected)


def inspected():
    shown = json.loads(tool("inspect", second, "--json", "--all").stdout)
    names = [part(i, 3) for i in (1, 2, 3)]
    case("forge-inspect lists the parts", [(f["name"], f["tensors"]) for f in shown["files"]] == list(zip(names, (3, 5, len(tensors) - 8)))
         and shown["bytes"] == sum(f["bytes"] for f in shown["files"]) and shown["runs"], shown["files"])
    case("and the file of each tensor", [t["file"] for t in shown["tensors"]] == [0] * 3 + [1] * 5 + [2] * (len(tensors) - 8))
    text = tool("inspect", second, "--all").stdout.decode()
    case("in the text too", all(name in text for name in names) and f"'output.weight' f32 [32, 260] in {names[2]}" in text, text)
    case("a whole model is one file", [f["name"] for f in json.loads(tool("inspect", whole, "--json").stdout)["files"]] == ["whole.gguf"])


def plans():
    expected = run_json(whole, "--tokens", IDS, "-n", 12)["tokens"]
    plan = at("split.plan")
    made = tool("compile", third, "-o", plan, "--target", "cpu,cpu-generic")
    shown = json.loads(tool("inspect", plan, "--json", "--all").stdout)
    case("the plan has all files", made.returncode == 0 and shown["model"]["path"] == first
         and [f["name"] for f in shown["model"]["files"]] == [part(i, 3) for i in (1, 2, 3)]
         and shown["model"]["bytes"] == sum(map(os.path.getsize, (first, second, third))), (made.stderr, shown["model"]))
    used = {source["file"] for weight in shown["programs"][0]["weights"] for source in weight["sources"]}
    case("its weights are in all of them", used == {0, 1, 2}, used)
    case("the plan names the files for people", all(part(i, 3) in tool("inspect", plan).stdout.decode() for i in (1, 2, 3)))
    case("the plan runs", run_json(plan, "--tokens", IDS, "-n", 12).get("tokens") == expected)
    os.rename(at("parts"), at("moved"))
    refused("the folder was moved", ["there is no file", "--model"], "run", plan, "--tokens", IDS)
    moved = [os.path.join(at("moved"), part(i, 3)) for i in (1, 2, 3)]
    for path in moved:
        case("it is found with --model, by any part", run_json(plan, "--model", path, "--tokens", IDS, "-n", 12).get("tokens") == expected)
    os.rename(moved[1], at("aside"))
    refused("a part of a plan's model has gone", [part(2, 3), "missing"], "run", plan, "--model", moved[0], "--tokens", IDS)
    os.rename(at("aside"), moved[1])
    os.rename(at("moved"), at("parts"))
    refused("a plan of the split model, given the whole one", ["whole.gguf", "another model"], "run", plan, "--model", whole, "--tokens", IDS)
    changed = split("changed", metadata, {**tensors, "blk.0.ffn_norm.weight": ((32,), bytes(128))}, (3, 5, 99))
    case("other weights of the same shapes fit the plan", "tokens" in run_json(plan, "--model", changed[0], "--tokens", IDS, "-n", 2))
    renamed = {("blk.0.ffn_up.weight" if n == "blk.0.ffn_gate.weight" else "blk.0.ffn_gate.weight" if n == "blk.0.ffn_up.weight" else n): t
               for n, t in tensors.items()}
    swapped = split("swapped", metadata, renamed)
    refused("a plan names the part that was changed", [swapped[1], "another model"], "run", plan, "--model", swapped[0], "--tokens", IDS)
    # Folders of downloads have links to files under other names.
    os.makedirs(at("links"), exist_ok=True)
    for i, path in enumerate((first, second, third)):
        shutil.copy(path, at(f"blob{i}"))
        os.symlink(at(f"blob{i}"), os.path.join(at("links"), part(i + 1, 3)))
    linked = at("linked.plan")
    made = tool("compile", os.path.join(at("links"), part(2, 3)), "-o", linked)
    case("a plan of parts that are links runs", run_json(linked, "--tokens", IDS, "-n", 12).get("tokens") == expected, made.stderr)


def gpu_plan():
    """For a card that need not be here; its compiler must."""
    if SANITIZED:
        return
    plan = at("gpu.plan")
    made = tool("compile", second, "-o", plan, "--target", "gfx1100")
    if made.returncode != 0:
        skip("a plan of a split model for gfx1100", made.stderr.decode())
        return
    shown = json.loads(tool("inspect", plan, "--json", "--all").stdout)
    used = {source["file"] for weight in shown["programs"][0]["weights"] for source in weight["sources"]}
    case("a plan for a GPU has all files", used == {0, 1, 2} and len(shown["model"]["files"]) == 3, used)


def kept_weights():
    args = ("--tokens", IDS, "-n", 4, "--json", "--device", "cpu", "--repack-cache")
    mapped = [json.loads(tool("run", path, *args).stdout)["load"]["mapped_bytes"] for path in (first, third)]
    case("packed weights are kept, whichever part is named", mapped[0] == 0 and mapped[1] > 0, mapped)
    before = open(third, "rb").read()
    with open(third, "r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(b"\0" * 16)
    run = tool("run", first, *args)
    case("a change of any part is noticed", json.loads(run.stdout)["load"]["mapped_bytes"] == 0 and len(said(run)) == 1
         and "changed" in said(run)[0], run.stderr)
    with open(third, "wb") as file:
        file.write(before)


def bad_parts():
    def broken(change):
        """The three parts in a folder, changed; the path of the first."""
        shutil.rmtree(at("bad"), ignore_errors=True)
        shutil.copytree(at("parts"), at("bad"))
        change(*(os.path.join(at("bad"), part(i, 3)) for i in (1, 2, 3)))
        return os.path.join(at("bad"), part(1, 3))

    missing = broken(lambda a, b, c: os.remove(b))
    for command in ("run", "compile", "inspect", "bench"):
        refused("a missing part", [f"{part(2, 3)} is missing"], command, missing)
    refused("a missing part, opened by another", [f"{part(2, 3)} is missing"], "run", missing.replace("00001-of", "00003-of"))
    case("a file that is not there is an error of reading", tool("run", missing.replace("00001-of", "00002-of")).returncode == 1)
    os.rename(missing, at("bad/x.gguf"))
    refused("a renamed part", ["x.gguf", "part 1 of 3"], "run", at("bad/x.gguf"))
    refused("a doubled part", [part(3, 3), "part 2 of 3"], "run", broken(lambda a, b, c: shutil.copy(b, c)))
    refused("a cut part", [part(2, 3), "the file ends"], "run", broken(lambda a, b, c: os.truncate(b, 200)))
    refused("an empty part", [part(2, 3)], "run", broken(lambda a, b, c: os.truncate(b, 0)), status=1)

    def replaced(name, contains, index, meta, mine):
        body = gguf({**({} if index else metadata), **meta}, mine)
        path = broken(lambda *paths: write(paths[index], body))
        refused(name, contains, "run", path)

    middle = {name: tensors[name] for name in list(tensors)[3:8]}
    own = keys(1, 3, len(tensors))
    replaced("a part of a model with more tensors", [part(2, 3), "another model"], 1, keys(1, 3, 99), middle)
    replaced("a tensor in two parts", [part(2, 3), part(3, 3), "output.weight"], 1, own, {**middle, "output.weight": tensors["output.weight"]})
    replaced("a part without one of its tensors", [part(1, 3), "split.tensors.count"], 1, own, dict(list(middle.items())[1:]))
    replaced("a part of another family", [part(2, 3), "general.architecture", "qwen3"], 1, {"general.architecture": "qwen3", **own}, middle)
    replaced("a part of a model of other shapes", [part(2, 3), "wrong shape"], 1, own,
             {**middle, "blk.0.ffn_gate.weight": ((32, 32), bytes(4096))})
    q8 = {name: (dims, bytes(len(body) // 128 * 34), 8) if len(dims) > 1 else (dims, body) for name, (dims, body) in middle.items()}
    f16 = {name: (dims, bytes(len(body) // 2), 1) if len(dims) > 1 else (dims, body) for name, (dims, body) in tensors.items()}
    mixed = split("mixed", metadata, f16)
    write(mixed[1], gguf(own, q8))
    refused("a part of another quantisation", [part(2, 3), "quantised differently", "q8_0"], "run", mixed[0])
    for count in (0, 2, 65535):
        replaced(f"a part with split.count {count}", [part(2, 3)], 1, {**own, "split.count": u16(count)}, middle)


def outputs():
    before = [open(path, "rb").read() for path in (first, second, third)]
    for path in (first, second, third):
        refused("a plan over a part", [path], "compile", second, "-o", path, status=USAGE)
        refused("logits over a part", [path], "run", second, "--tokens", "1,2", "--dump-logits", path, "--device", "cpu", status=USAGE)
        refused("a trace over a part", [path], "run", second, "--tokens", "1,2", "--json", "--profile-trace", path, "--device", "cpu", status=USAGE)
        refused("a benchmark's trace over a part", [path], "bench", third, "-p", 8, "-n", 0, "--profile-trace", path, "--device", "cpu", status=USAGE)
    case("the parts are unchanged", before == [open(path, "rb").read() for path in (first, second, third)])


def real_files(shared):
    folder = os.path.join(shared, "conformance")
    for name in CASES:
        path = os.path.join(folder, name + ".gguf")
        if not os.path.exists(path):
            skip(f"{name} in parts", f"reference data is absent: {path}")
            continue
        tokens = ",".join(map(str, json.load(open(path[:-5] + ".json", encoding="utf-8"))["tokens"]))
        with open(path, "rb") as file:
            metadata, tensors = read_gguf(file.read())
        share = len(tensors) // 4
        parts = split(name, metadata, tensors, (share, share, share, len(tensors)))
        case(f"{name}: the same logits from four parts", logits(parts[0], "--tokens", tokens) == logits(path, "--tokens", tokens))
    path = os.path.join(shared, "families", "qwen35-q4_k_m-00002-of-00003.gguf")
    if not os.path.exists(path):
        skip("a model that another program split", f"reference data is absent: {path}")
        return
    shown = json.loads(tool("inspect", path, "--json").stdout)
    case("a model that another program split", [f["tensors"] for f in shown["files"]] == [5, 15, 7], shown["files"])


if __name__ == "__main__":
    for group in (same_answers, inspected, plans, gpu_plan, kept_weights, bad_parts, outputs):
        group()
    real_files(os.environ.get("FORGE_SHARED") or (sys.argv[1] if len(sys.argv) > 1 else ""))
    finish()
