#!/usr/bin/env python3
"""The generated man pages and shell completions: each has every option that --help lists, bash completes with them, and they
are installed where man and the shells look. Other shells and man-page checkers are used where they are installed.

usage: FORGE_BIN=DIR pages.py
"""
import json
import os
import re
import shutil
import subprocess

from lib_cli import BIN, FOLDER, at, case, environment, finish, said, skip, tool, write

TOOLS = ("bench", "compile", "inspect", "run", "serve")
COMMANDS = ("tokenize", "render-chat", "devices", "self-test", "families", "trace", "cache", "parse-answers",
            "check-constraints")
FORMS = {"man": "{}.1", "bash": "{}.bash", "zsh": "_{}", "fish": "{}.fish"}


def path_of(name, form):
    return os.path.join(BIN, FORMS[form].format("forge-" + name))


def text_of(name, form):
    with open(path_of(name, form), encoding="utf-8") as file:
        return file.read()


def flags(*args):
    """The options in CLI11's help text: "  -n,--predict N  help"."""
    text = tool(*args, "--help").stdout.decode()
    return {flag for line in re.findall(r"^  (-[\w-]+(?:,-[\w-]+)*)", text, re.M) for flag in line.split(",")}


def shown(form, flag):
    """A pattern for a flag as the output format `form` spells it."""
    bare = re.escape(flag.lstrip("-"))
    return {"man": r"\\fB" + re.escape(flag.replace("-", r"\-")) + r"\\fR", "bash": rf"[ ']{re.escape(flag)}[ ']",
            "zsh": rf"[)*]{re.escape(flag)}=?\[", "fish": rf" -l {bare} " if flag.startswith("--") else rf" -s {bare} "}[form]


def width():
    """Checks that --help fits a terminal of 100 columns."""
    for args in [(name,) for name in TOOLS] + [("inspect", command) for command in COMMANDS]:
        lines = tool(*args, "--help").stdout.decode().splitlines()
        long = [line for line in lines if len(line) > 100]
        case(f"{' '.join(args)} --help has at most 100 columns", len(lines) > 5 and not long, long)


def every_option():
    for name in TOOLS:
        wanted = {"": flags(name)}
        if name == "inspect":
            wanted |= {command: flags(name, command) for command in COMMANDS}
        case(f"forge-{name} has options", all(len(found) >= 3 for found in wanted.values()) and "--help" in wanted[""], wanted)
        for form in FORMS:
            text = text_of(name, form)
            case(f"{form} of forge-{name} is the tool's own output", tool(name, "--help-as", form).stdout.decode() == text)
            missing = {flag for found in wanted.values() for flag in found if not re.search(shown(form, flag), text)}
            case(f"{form} of forge-{name} has every option", not missing, missing)
    for command in COMMANDS:
        case(f"forge-inspect {command} is in each format", all(re.search(rf"\b{command.replace('-', '.{1,2}')}\b", text_of("inspect", form)) for form in FORMS))
    refused = tool("run", "--help-as", "html")
    case("an unknown format is refused", refused.returncode == 2 and len(said(refused)) == 1 and not refused.stdout, refused.stderr)


def complete(*typed):
    """The completions that bash offers for the last word."""
    name = typed[0]
    words = " ".join("'" + word + "'" for word in typed)
    script = (f"source '{path_of(name[len('forge-'):], 'bash')}'\nCOMP_WORDS=({words})\nCOMP_CWORD={len(typed) - 1}\n"
              f"shown=$(complete -p {name}); shown=${{shown#*-F }}; ${{shown%% *}}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n")
    run = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, cwd=at("here"), env=environment())
    case(f"bash completes {typed} without an error message", run.returncode == 0 and not run.stderr, run.stderr)
    return sorted(line for line in run.stdout.splitlines() if line)


def bash():
    for name in TOOLS:
        run = subprocess.run(["bash", "-n", path_of(name, "bash")], capture_output=True, text=True, timeout=60)
        case(f"bash can source the completion of forge-{name}", run.returncode == 0 and not run.stderr, run.stderr)
    os.makedirs(at("here/folder"))
    write("here/model.gguf", b"")
    everything = ["folder", "model.gguf"]
    for typed, offered in ((("forge-run", "--kv-type", ""), ["f16", "fp8", "q4_0", "q8_0"]), (("forge-run", "--kv-type", "q"), ["q4_0", "q8_0"]),
                           (("forge-run", "--kv-type", "=", "q"), ["q4_0", "q8_0"]), (("forge-run", "--kv-type", "="), ["f16", "fp8", "q4_0", "q8_0"]),
                           (("forge-run", "--kv-t"), ["--kv-type"]), (("forge-run", ""), everything),
                           (("forge-run", "model.gguf", "-n", ""), []), (("forge-run", "model.gguf", "-f", "m"), ["model.gguf"]),
                           (("forge-compile", "m"), ["model.gguf"]), (("forge-compile", "--dump-ir", ""), ["folder"]),
                           (("forge-bench", "--read"), ["--read-rate"]), (("forge-bench", "-o", "js"), ["json", "jsonl"]),
                           (("forge-inspect", "t"), ["tokenize", "trace"]), (("forge-inspect", "f"), ["families", "folder"]),
                           (("forge-inspect", "cache", "--clear", "w"), ["weights"]), (("forge-inspect", "cache", ""), []),
                           (("forge-inspect", "trace", "--w"), ["--whole"]), (("forge-inspect", "--whole"), []),
                           (("forge-serve", "--log-level", ""), ["error", "info", "warning"]), (("forge-serve", "m"), ["model.gguf"]),
                           (("forge-inspect", "tokenize", ""), everything)):
        found = complete(*typed)
        case(f"{typed} completes to {offered}", found == offered, found)
    found = complete("forge-run", "-")
    case("a dash completes to all options", {"-n", "--predict", "--json", "--help"} <= set(found) and found[0].startswith("-"), found)


def man():
    sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"]
    macros = {".TH", ".SH", ".SS", ".TP", ".B", ".br", ".nf", ".fi", ".PP"}
    for name in TOOLS:
        text = text_of(name, "man")
        lines = text.splitlines()
        case(f"forge-{name}.1 begins with a man-page header", re.match(rf'\.TH FORGE\\-{name.upper()} 1 "" "forge [^"]+" ', lines[0]), lines[0])
        found = [line[4:] for line in lines if line.startswith(".SH ")]
        case("its sections are in the standard order", [section for section in found if section in sections] == sections, found)
        used = {line.split()[0] for line in lines if line.startswith((".", "'"))}
        others = {f"forge-{other}" for other in TOOLS if other != name}
        case("it lists the other tools", set(re.findall(r"\\fB(.+?)\\fR\(1\)", lines[-1].replace("\\-", "-"))) == others, lines[-1])
        case("no text line is taken for a macro", used <= macros, used - macros)
        case("it has no empty line and no tab", all(line and "\t" not in line for line in lines[:lines.index('.SH EXIT STATUS')]
                                          if ".nf" not in text or line), name)
        fonts = re.findall(r"\\f(.)", text)
        case("each font change is reset", fonts[1::2] == ["R"] * (len(fonts) // 2) and len(fonts) % 2 == 0 and "R" not in fonts[::2], name)


def other_readers():
    """Checkers of shells and man pages, as far as they are installed."""
    for form, command in (("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"]), ("man", ["mandoc", "-Tlint", "-Wwarning"]),
                          ("man", ["groff", "-man", "-ww", "-z", "-Tascii"])):
        if shutil.which(command[0]) is None:
            skip(f"{form} pages by {command[0]}", "it is not installed")
            continue
        for name in TOOLS:
            run = subprocess.run([*command, path_of(name, form)], capture_output=True, text=True, timeout=60, cwd=FOLDER)
            told = [line for line in (run.stdout + run.stderr).splitlines() if "missing date" not in line]
            case(f"{command[0]} accepts the output of forge-{name}", not told, told)


def installed():
    with open(os.path.join(BIN, "..", "meson-info", "intro-installed.json"), encoding="utf-8") as file:
        places = json.load(file)
    for name in TOOLS:
        for built, end in ((os.path.join(BIN, "forge-" + name), f"/bin/forge-{name}"), (path_of(name, "man"), f"/man/man1/forge-{name}.1"),
                           (path_of(name, "bash"), f"/bash-completion/completions/forge-{name}.bash"),
                           (path_of(name, "zsh"), f"/zsh/site-functions/_forge-{name}"),
                           (path_of(name, "fish"), f"/fish/vendor_completions.d/forge-{name}.fish")):
            place = next((place for file, place in places.items() if os.path.realpath(file) == os.path.realpath(built)), "nowhere")
            case(f"{os.path.basename(built)} is installed as {end}", place.endswith(end), place)


if __name__ == "__main__":
    for group in (width, every_option, bash, man, other_readers, installed):
        group()
    finish()
