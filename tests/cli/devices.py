#!/usr/bin/env python3
"""`forge-inspect devices` reports drivers, GPUs and missing parts correctly, and no tool requires a vendor's library.

Besides this machine's libraries it is run on stand-ins; Meson passes the folders where it built them.
"""
import json
import os
import re
import subprocess

from lib_cli import BIN, CACHE, case, environment, finish, gguf, skip, tiny_parts, tool, write

KEYS = {"available", "library", "version", "compiler", "compiler_version", "cards", "missing", "problems"}


def shown(folders=None):
    """The JSON and the text output; both runs must succeed on any machine."""
    env = environment()
    env.pop("LD_LIBRARY_PATH", None)  # Meson adds the stand-ins to it
    env |= {"LD_LIBRARY_PATH": folders} if folders else {}
    as_json, text = (tool("inspect", "devices", *flags, env=env) for flags in (["--json"], []))
    case("devices succeeds", as_json.returncode == 0 and text.returncode == 0, as_json.stderr + text.stderr)
    return json.loads(as_json.stdout), text.stdout.decode()


def this_machine():
    devices, text = shown()
    for vendor in ("hip", "cuda"):
        report = devices[vendor]
        case(f"{vendor}: the report has all fields", set(report) == KEYS, sorted(report))
        case(f"{vendor}: GPUs or a reason", report["cards"] or report["missing"] or report["problems"], report)
        case(f"{vendor}: available means that there is a GPU", report["available"] == bool(report["cards"]), report)
        case(f"{vendor}: each missing part has its package", all(m["what"] and m["install"] for m in report["missing"]), report)
        case(f"{vendor}: each library has a version", bool(report["library"]) == bool(report["version"]), report)
        case(f"{vendor}: the text output has it", re.search(rf"^{vendor}(:0)? ", text, re.M), text)
    case("no line is too long to read", max(map(len, text.splitlines())) < 340, text)


def stand_in_cards(folders):
    devices, text = shown(folders)
    for vendor, arch, target, wave in (("hip", "gfx942:sramecc+:xnack-", "gfx942", 64), ("cuda", "sm_90", "sm_90", 32)):
        report = devices[vendor]
        if "standin" not in report["library"]:
            skip(f"{vendor}: the stand-in card", "this machine has a newer library of its own")
            continue
        card = report["cards"][0]
        case(f"{vendor}: the GPU with its driver's name", report["available"] and len(report["cards"]) == 1
             and (card["device"], card["name"], card["arch"], card["target"], card["wave_size"])
             == (vendor + ":0", "stand-in card", arch, target, wave), card)
        case(f"{vendor}: its memory and address", card["memory"] == 8 << 30 and card["pci"] == "0001:23:04.0", card)
        case(f"{vendor}: the text output", f"{vendor}:0".ljust(8) + f"stand-in card, {arch} at 0001:23:04.0" in text
             and "memory 8.0 GiB" in text, text)


def self_test_without_cards(folder):
    env = environment(LD_LIBRARY_PATH=folder)  # libraries that do not work
    if any(shown(folder)[0][vendor]["available"] for vendor in ("hip", "cuda")):
        return skip("self-test without a card", "this machine's own libraries are found before those that do not work")
    run = tool("inspect", "devices", "--self-test", env=env)
    case("self-test without a GPU", run.returncode == 4 and b"there is no GPU to test" in run.stderr, run.stderr)
    for flags, told in ((["--device", "hip:0"], b"needs --self-test"), (["--self-test", "--device", "cpu"], b"is unknown")):
        run = tool("inspect", "devices", *flags, env=env)
        case(f"devices {flags} is refused", run.returncode == 2 and told in run.stderr, run.stderr)
    run = tool("inspect", "self-test", env=env)
    case("a self-test without --device is refused", run.returncode == 2 and b"--device is missing" in run.stderr, run.stderr)


def self_test_of_a_stand_in(folders):
    """A GPU that computes nothing fails the self-test, is an error if named, and is replaced by the CPU; its verdict is kept."""
    devices, _ = shown(folders)
    cuda = devices["cuda"]
    if "standin" not in cuda["library"] or not cuda["compiler"]:
        return skip("self-test of a stand-in", "a card of this machine's own, or no compiler that makes code for the stand-in")
    env = environment(LD_LIBRARY_PATH=":".join(f for f in folders.split(":") if "nvidia" in f))
    model = write("tiny.gguf", gguf(*tiny_parts()))
    generate = ["run", model, "--tokens", "1,2,3", "-n", "2"]
    named = tool(*generate, "--device", "cuda:0", env=env)
    told = named.stderr.decode()
    case("a failing GPU is an error when named", named.returncode == 4 and "error[device]: stand-in card (sm_90, driver "
         in told and "fails forge's self-test: shuffle (" in told, told)
    case("notes report the self-test and its result", "note: testing stand-in card (" in told and "note: self-test: 0 of " in told, told)
    verdicts = os.listdir(os.path.join(CACHE, "verdicts"))
    case("the verdict is kept", len(verdicts) == 1 and verdicts[0].endswith(".verdict"), verdicts)

    auto = tool(*generate, env=env)
    told = auto.stderr.decode()
    case("without a name the CPU runs, and a note says why", auto.returncode == 0 and auto.stdout and "note: running on the CPU: " in told
         and "fails forge's self-test" in told, told)
    case("the GPU is not tested again", "note: testing" not in told, told)

    path = os.path.join(CACHE, "verdicts", verdicts[0])
    with open(path, "wb") as file:
        file.write(b"forge verdict 1\n")
    again = tool(*generate, "--device", "cuda:0", env=env)
    told = again.stderr.decode()
    case("a damaged verdict gives a line and a new test", again.returncode == 4 and "is damaged; ignored, testing the card again"
         in told and "note: testing" in told, told)

    shown_text = tool("inspect", "devices", "--self-test", env=env)
    lines = shown_text.stdout.decode().splitlines()
    case("an explicit self-test runs again, one line per primitive", shown_text.returncode == 4 and lines[0].startswith("cuda:0 shuffle: ")
         and re.fullmatch(r"self-test: 0 of \d+ passed on stand-in card \(sm_90, driver \S+, NVRTC \S+\) in \S+ s", lines[-1]), lines[-1:])
    run = tool("inspect", "devices", "--self-test", "--json", "--device", "cuda:0", env=env)
    card = json.loads(run.stdout)["cards"][0]
    case("the self-test as JSON", run.returncode == 4 and card["device"] == "cuda:0" and not card["passed"] and len(card["tests"]) == len(lines) - 1
         and all(set(test) == {"name", "ok", "detail", "ms"} and not test["ok"] and test["detail"] for test in card["tests"]), card)
    case("an absent GPU", tool("inspect", "devices", "--self-test", "--device", "cuda:7", env=env).returncode == 4)


def libraries_that_do_not_work(folder):
    devices, text = shown(folder)
    hip, cuda = devices["hip"], devices["cuda"]
    case("a library that lacks functions", not hip["available"] and "it lacks hipDriverGetVersion" in hip["problems"][0], hip)
    case("a file that is not a library", not cuda["available"] and "libcuda.so.1 does not load" in cuda["problems"][0], cuda)
    case("the text output has both, without error codes", "it lacks hipDriverGetVersion" in text and "does not load" in text
         and "error[" not in text, text)


def tools_start_anywhere():
    names = [name for name in sorted(os.listdir(BIN)) if re.fullmatch(r"forge-\w+", name) and os.path.isfile(os.path.join(BIN, name))]
    case("the tools are built", {"forge-compile", "forge-inspect", "forge-run", "forge-serve"} <= set(names), names)
    for name in names:
        path = os.path.join(BIN, name)
        needed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"NEEDED.*\[(lib(?:amdhip|hip|hsa|cuda|nv)[^\]]*)\]", needed)
        case(f"{name} requires no vendor library", "NEEDED" in needed and not found, found)


if __name__ == "__main__":
    this_machine()
    if "FORGE_STANDIN_CARDS" in os.environ:
        stand_in_cards(os.environ["FORGE_STANDIN_CARDS"])
        libraries_that_do_not_work(os.environ["FORGE_STANDIN_INCOMPLETE"])
        self_test_without_cards(os.environ["FORGE_STANDIN_INCOMPLETE"])
        self_test_of_a_stand_in(os.environ["FORGE_STANDIN_CARDS"])
    tools_start_anywhere()
    finish()
