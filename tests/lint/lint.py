#!/usr/bin/env python3
"""Project rules that compilers do not check. Run by tools/check; takes a second at most.

usage: lint.py [ROOT]     exit 1 and one line per finding: FILE:LINE: RULE: TEXT
       lint.py --self-test     checks on sample texts that each rule fires where it should and nowhere else

Rules: include-direction (docs/architecture.md's table), graph-header (adjacency_list.hpp adds seconds to each file's
compilation, so only one .cc may include it), file-length, machine-path and package-host (no paths or hosts of one
person's machine), test-asserts (each test case checks something: assertions.py), test-built (each *_test.cc is named in
its folder's meson.build), broken-link (relative links and pictures of *.md name tracked files, and headings that these
have).
"""
import os
import re
import subprocess
import sys

from assertions import Tests

LINES_MAX = 500
# Files that may exceed the length limit, each with its reason.
LONG_FILES = {
    "LICENSE": "the licence's own text",
}

# Room -> rooms that it may include besides itself. The longest matching room applies.
ROOMS = {
    "support": [],
    "kernels/quant": [],
    "kernels/elementwise": [],
    "kernels/gpu": ["kernels/quant", "kernels/elementwise", "kernels/gpu/step_io.h"],
    "kernels/cpu": ["kernels/quant", "kernels/elementwise", "support"],
    "kernels": ["kernels/quant", "kernels/elementwise", "support"],
    "ir": ["kernels/quant", "kernels/elementwise", "support"],
    "loader/gguf": ["kernels/quant", "support"],
    "loader": ["loader/gguf", "ir", "kernels/quant", "support"],
    "text": ["loader/gguf", "support"],  # a tokenizer is read from a GGUF file's metadata
    "passes": ["ir", "kernels/quant", "runtime/plan", "support"],
    "codegen": ["passes", "ir", "kernels", "runtime/plan", "runtime/driver", "support"],
    "kernels/gpu/step_io.h": [],  # layouts shared by host and kernels
    "runtime/plan": ["kernels/quant", "kernels/gpu/step_io.h", "support"],
    "runtime/driver": ["support"],
    "runtime/engine": ["runtime", "support"],
    "runtime": ["runtime/plan", "runtime/driver", "kernels", "support"],
    "session": ["runtime", "codegen", "passes", "loader", "text", "ir", "kernels", "support"],
    "serve": ["runtime/engine", "session", "text", "support"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/(?:work|root|home/(?!USER\b)\w+|Users/\w+|opt/wheels)\b")
PACKAGE_HOST = re.compile(
    r"\b(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|pkg\.dev|deb\.debian\.org|snapshot\.debian\.org|ftp\.\w+\.debian\.org"
    r"|security\.debian\.org|archive\.ubuntu\.com|crates\.io|npmjs\.org|artifactory[\w.-]*)\b"
)
MARKDOWN_CODE = re.compile(r"^(?: {4}|\t).*$|`[^`\n]*`", re.MULTILINE)
MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)")
MARKDOWN_HEADING = re.compile(r"^#+ +(.*?)\s*$", re.MULTILINE)
THROWING_NOTE = re.compile(r"print(?:ln)?\(stderr\b")


def room_of(path, rooms=ROOMS):
    """The longest room that contains `path`, or None (tools and tests may include anything)."""
    found = [r for r in rooms if path == r or path.startswith(r + "/")]
    return max(found, key=len, default=None)


def include_direction(path, text):
    room = room_of(path)
    if room is None:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not (m := INCLUDE.match(line)):
            continue
        target = m.group(1)
        other = room_of(target)
        if other is None and target.split("/")[0] in ("tools", "tests"):
            yield number, f'{room} must not include "{target}"'
        if other is None or other == room:
            continue
        if not any(other == a or other.startswith(a + "/") for a in ROOMS[room]):
            yield number, f'{room} must not include "{target}"'


def file_length(path, text):
    lines = text.count("\n")
    if lines > LINES_MAX and path not in LONG_FILES:
        yield LINES_MAX, f"{lines} lines, at most {LINES_MAX}"


def matches(pattern, what):
    def rule(path, text):
        for number, line in enumerate(text.splitlines(), 1):
            if m := pattern.search(line):
                yield number, f"{what} '{m.group(0)}'"

    return rule


def notes_that_throw(path, text):
    """fmt::print throws if stderr cannot be written, so that a mere note would lose the answer; use say() of support/os/console.h."""
    if path.startswith("tools/"):
        yield from matches(THROWING_NOTE, "stderr is for say(), not for")(path, text)


def heading_links(text):
    """What links to the headings of a Markdown file end with, by GitHub's rule; code in headings keeps its words."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in MARKDOWN_HEADING.findall(text)}


def broken_links(path, text, files):
    """Relative links of a Markdown file that name no file, no folder, or no heading of the file that they name."""
    blanked = MARKDOWN_CODE.sub(lambda m: " " * len(m.group(0)), text)  # keeps line numbers
    for m in MARKDOWN_LINK.finditer(blanked):
        target, _, heading = m.group(1).partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:", target):  # https:, mailto:
            continue
        number = blanked.count("\n", 0, m.start()) + 1
        named = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if named not in files and not any(p.startswith(named + "/") for p in files):
            yield number, f"'{m.group(1)}' names no file"
        elif heading and named.endswith(".md") and heading not in heading_links(files[named]):
            yield number, f"'{m.group(1)}' names no heading"


RULES = {
    "include-direction": ((".cc", ".h"), include_direction),
    "file-length": ((".cc", ".h", ".py", ".sh", ".fbs", ".def", ".build", ""), file_length),
    "machine-path": (None, matches(MACHINE_PATH, "a machine's own path")),
    "package-host": (None, matches(PACKAGE_HOST, "a package host")),
    "notes-that-throw": ((".cc", ".h"), notes_that_throw),
}


def tracked(root):
    """Paths relative to root: the files tracked by git, or without git all files outside build and hidden folders."""
    git = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True) if _has_git(root) else None
    if git and git.returncode == 0:
        return [p for p in git.stdout.decode().split("\0") if p and os.path.isfile(os.path.join(root, p))]
    paths = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(("build", ".")) and f != "__pycache__"]
        paths += [os.path.relpath(os.path.join(folder, f), root) for f in files if not f.startswith(".")]
    return sorted(paths)


def _has_git(root):
    try:
        return subprocess.run(["git", "-C", root, "rev-parse"], capture_output=True).returncode == 0
    except OSError:
        return False


def check(files):
    """files: path -> text. Yields 'path:line: rule: text'."""
    graph_users, tests = [], Tests(files)
    for path, text in files.items():
        if path in ("tests/lint/lint.py", "tests/lint/assertions.py"):  # their patterns and self-test contain the forbidden texts
            continue
        for name, (endings, rule) in RULES.items():
            if endings is None or os.path.splitext(path)[1] in endings:
                for number, finding in rule(path, text):
                    yield f"{path}:{number}: {name}: {finding}"
        if path.endswith(".md"):
            for number, finding in broken_links(path, text, files):
                yield f"{path}:{number}: broken-link: {finding}"
        if path.endswith((".cc", ".h")) and "boost/graph/adjacency_list.hpp" in text:
            graph_users.append(path)
        if path.startswith("tests/") and path.endswith("_test.cc"):
            folder = os.path.dirname(path)
            described = "".join(t for p, t in files.items() if p.startswith("tests/") and p.endswith("meson.build"))
            if os.path.basename(path) not in described:
                yield f"{path}:1: test-built: not named in {folder}/meson.build"
            for number, finding in tests.findings(path):
                yield f"{path}:{number}: test-asserts: {finding}"
    includes = [p for p in graph_users if re.search(r"#\s*include\s*<boost/graph/adjacency_list.hpp>", files[p])]
    for path in includes:
        if path.endswith(".h") or len(includes) > 1:
            yield f"{path}:1: graph-header: adjacency_list.hpp belongs in one .cc only ({', '.join(includes)})"


def self_test():
    """Each row: a file's path and text, and the rule that must fire (None: no finding)."""
    rows = [
        ("ir/a.cc", '#include "passes/pass.h"\n', "include-direction"),
        ("runtime/plan/a.cc", '#include "runtime/engine.h"\n', "include-direction"),
        ("runtime/a.cc", '#include "runtime/plan/plan.h"\n#include "kernels/quant/dtype.h"\n', None),
        ("codegen/a.cc", '#include "loader/gguf/gguf.h"\n', "include-direction"),
        ("kernels/quant/a.h", '#include "support/error.h"\n', "include-direction"),
        ("kernels/elementwise/a.h", '#include "kernels/quant/dtype.h"\n', "include-direction"),
        ("ir/a.cc", '#include "kernels/elementwise/function.h"\n', None),
        ("tools/a.cc", '#include "loader/gguf/gguf.h"\n#include "passes/pass.h"\n', None),
        ("loader/a.cc", '#include "tools/a.h"\n', "include-direction"),
        ("ir/long.cc", "\n" * (LINES_MAX + 1), "file-length"),
        ("docs/a.md", "see /home/x\n", "machine-path"),
        ("docs/a.md", "see ~/.local/share and lib/home/x\n", None),
        ("docs/a.md", "from files.pythonhosted.org\n", "package-host"),
        ("docs/a.md", "# A\n[x](b.md)\n", "broken-link"),
        ("docs/a.md", "![x](images/b.svg)\n", "broken-link"),
        ("docs/a.md", "## What's new\n[x](#whats-old)\n", "broken-link"),
        ("docs/a.md", "## What's new\n[x](#whats-new) [y](a.md) [z](../tests/a/) [w](https://example.org/b.md)\n", None),
        ("docs/a.md", "    a[0](b)\n`a[0](b)`\n", None),
        ("tools/a.cc", 'fmt::print(stderr, "x");\n', "notes-that-throw"),
        ("ir/graph.h", "#include <boost/graph/adjacency_list.hpp>\n", "graph-header"),
    ]
    # Definitions of a test file besides `void helper() { ... }`, the body of its case, and whether that case asserts.
    asserting = [
        ("", "f();", False),
        ("", "REQUIRE_THROWS_AS(f(), E);", True),
        ("", "RC_ASSERT(f());", True),
        ("", "// CHECK(f());", False),
        ("", 'f("CHECK(1)");', False),
        ("", "check(f());", False),  # a name alone is not an assertion
        ("void check(int x) { g(x); }", "check(f());", False),
        ("void check(int x) { CHECK(x); }", "check(f());", True),
        ("void check(int x) { CHECK(x); }\nvoid check(E x) { g(x); }", "check(f());", False),
        ("template <class T>\nauto same(T x) -> bool { return helper(x); }", "same<int>(f());", False),
        ("void helper(int x) { CHECK(x); }\nbool same(int x) { return helper(x); }", "same(1);", True),
        ("void again(int x) { again(x); }", "again(1);", False),
        ("", "const auto same = [&](int x) { return x; };\n  same(1);", False),
        ("", "const auto same = [&](int x) { CHECK(x); };\n  same(1);", True),
        ("#define SAME(x) CHECK(x)", "SAME(1);", True),
        ('#include "tests/a/other.h"', "in_header(1);", True),
        ('#include "tests/a/other.h"', "in_source(1);", True),
        ("", "in_header(1);", False),  # no include reaches the definition
        ("", 'CHECK(rc::check("x", [] {}));', True),
        ("", 'f();\n  rc::check("x", [] { RC_ASSERT(1); });', False),
    ]
    others = {"tests/a/other.h": "inline void in_header(int x) { CHECK(x); }\nvoid in_source(int x);\n",
              "tests/a/other.cc": "void in_source(int x) {\n  if (x) FAIL();\n}\n"}
    described = {"tests/a/meson.build": "'b_test.cc'"}
    bad = 0
    for path, text, rule in rows:
        found = [line.split(": ")[1] for line in check({path: text} | described)]
        if found != ([rule] if rule else []):
            bad += 1
            print(f"self-test: {path!r} {text[:40]!r}: found {found}, expected {rule}")
    if [x.split(": ")[1] for x in check({"tests/a/c_test.cc": 'TEST_CASE("x") { CHECK(1); }\n'} | described)] != ["test-built"]:
        bad += 1
        print("self-test: test-built did not fire")
    for helpers, body, good in asserting:
        text = f'{helpers}\nTEST_CASE("x") {{\n  {body}\n}}\nTEST_CASE("y") {{ CHECK(g()); }}\n'
        found = [line.split(": ")[1] for line in check({"tests/a/b_test.cc": text} | others | described)]
        if found != ([] if good else ["test-asserts"]):
            bad += 1
            print(f"self-test: {text!r}: found {found}")
    print(f"{len(rows) + len(asserting) + 1 - bad} passed, {bad} failed")
    return bad


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    files = {}
    for path in tracked(root):
        try:
            with open(os.path.join(root, path), encoding="utf-8") as f:
                files[path] = f.read()
        except UnicodeDecodeError:
            continue  # a binary file: no rule applies
    findings = list(check(files))
    print("\n".join(findings))
    print(f"{len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
