#!/usr/bin/env python3
"""`forge-inspect devices`: what it says of drivers, cards and what is missing; and that no tool needs a vendor's library.

Beside this machine's own libraries it sees stand-ins, whose folders Meson names where it built them.
"""
import json
import os
import re
import subprocess

from lib_cli import BIN, case, environment, finish, tool

KEYS = {"available", "library", "version", "compiler", "compiler_version", "cards", "missing", "problems"}


def shown(folders=None):
    """The JSON and the text; both must end well whatever is there."""
    env = environment()
    env.pop("LD_LIBRARY_PATH", None)  # Meson puts the stand-ins there
    env |= {"LD_LIBRARY_PATH": folders} if folders else {}
    as_json, text = (tool("inspect", "devices", *flags, env=env) for flags in (["--json"], []))
    case("it ends well", as_json.returncode == 0 and text.returncode == 0, as_json.stderr + text.stderr)
    return json.loads(as_json.stdout), text.stdout.decode()


def this_machine():
    devices, text = shown()
    for vendor in ("hip", "cuda"):
        report = devices[vendor]
        case(f"{vendor}: all is said", set(report) == KEYS, sorted(report))
        case(f"{vendor}: cards or a reason", report["cards"] or report["missing"] or report["problems"], report)
        case(f"{vendor}: available is having a card", report["available"] == bool(report["cards"]), report)
        case(f"{vendor}: what is missing has its package", all(m["what"] and m["install"] for m in report["missing"]), report)
        case(f"{vendor}: a version with each library", bool(report["library"]) == bool(report["version"]), report)
        case(f"{vendor}: the text has it", re.search(rf"^{vendor}(:0)? ", text, re.M), text)
    case("no line is too long to read", max(map(len, text.splitlines())) < 340, text)


def stand_in_cards(folders):
    devices, text = shown(folders)
    for vendor, arch, target, wave in (("hip", "gfx942:sramecc+:xnack-", "gfx942", 64), ("cuda", "sm_90", "sm_90", 32)):
        report = devices[vendor]
        if "standin" not in report["library"]:
            continue  # this machine has a newer library of its own
        card = report["cards"][0]
        case(f"{vendor}: the card as its driver calls it", report["available"] and len(report["cards"]) == 1
             and (card["device"], card["name"], card["arch"], card["target"], card["wave_size"])
             == (vendor + ":0", "stand-in card", arch, target, wave), card)
        case(f"{vendor}: its memory and address", card["memory"] == 8 << 30 and card["pci"] == "0001:23:04.0", card)
        case(f"{vendor}: in text", f"{vendor}:0".ljust(8) + f"stand-in card, {arch} at 0001:23:04.0" in text
             and "memory 8.0 GiB" in text, text)


def libraries_that_do_not_work(folder):
    devices, text = shown(folder)
    hip, cuda = devices["hip"], devices["cuda"]
    case("a library that lacks functions", not hip["available"] and "it lacks hipDriverGetVersion" in hip["problems"][0], hip)
    case("a library that is none", not cuda["available"] and "libcuda.so.1 does not load" in cuda["problems"][0], cuda)
    case("both in text, without error codes", "it lacks hipDriverGetVersion" in text and "does not load" in text
         and "error[" not in text, text)


def tools_start_anywhere():
    for name in sorted(os.listdir(BIN)):
        path = os.path.join(BIN, name)
        if not re.fullmatch(r"forge-\w+", name) or not os.path.isfile(path):
            continue
        needed = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"NEEDED.*\[(lib(?:amdhip|hip|hsa|cuda|nv)[^\]]*)\]", needed)
        case(f"{name} needs no vendor's library", "NEEDED" in needed and not found, found)


if __name__ == "__main__":
    this_machine()
    if "FORGE_STANDIN_CARDS" in os.environ:
        stand_in_cards(os.environ["FORGE_STANDIN_CARDS"])
        libraries_that_do_not_work(os.environ["FORGE_STANDIN_INCOMPLETE"])
    tools_start_anywhere()
    finish()
