"""Finds test cases that assert nothing, for lint.py's rule test-asserts.

An assertion is a Catch2 or RapidCheck macro, or a call of a function, lambda or macro of the tests whose own body asserts,
directly or through other calls. Calls are resolved by name: first in the file itself, then in the headers of tests/ that it
includes and the .cc files of the same names. If several definitions share a name, all must assert.
"""
import os
import re

TEST_CASE = re.compile(r"^(?:TEST_CASE|TEST_CASE_METHOD|TEMPLATE_TEST_CASE\w*|SCENARIO)\s*\(", re.M)
# rc::prop fails the enclosing case (rapidcheck/catch.h); rc::check only returns a result.
ASSERTION = re.compile(r"\b(?:CHECK|REQUIRE|STATIC_REQUIRE)(?:_\w+)?\s*\(|\bFAIL(?:_CHECK)?\s*\(|\bRC_(?:ASSERT|FAIL)\w*\s*\(|\brc::prop\s*\(")
IGNORED_CHECK = re.compile(r"^\s*rc::check\s*\(", re.M)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|(?<!\w)\'(?:[^\'\\\n]|\\.)+\'', re.S)
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;(){}]*>)?\s*\(")
LAMBDA = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*\[")
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(((?:[^\n]*\\\n)*[^\n]*)", re.M)
TAIL = re.compile(r"\s*(?:(?:const|noexcept|override|final|mutable|&&?)\s*)*(?:->[\w:<>,&*\s]+)?\{")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
KEYWORDS = {"if", "for", "while", "switch", "catch", "return", "sizeof", "decltype", "alignof", "constexpr", "requires"}


def blank(match):
    """Replaces a match by blanks of the same length and lines, so that positions stay valid."""
    return re.sub(r"[^\n]", " ", match.group(0))


def brackets(code):
    """Position of each opening bracket -> position of its closing one."""
    ends, open_ = {}, []
    for m in re.finditer(r"[(){}\[\]]", code):
        if m.group() in "({[":
            open_.append(m.start())
        elif open_:
            ends[open_.pop()] = m.start()
    return ends


class File:
    """A test file: its test cases, and the bodies of its definitions by name."""

    def __init__(self, text):
        code = NOT_CODE.sub(blank, text)
        ends = brackets(code)
        self.includes = INCLUDE.findall(text)
        self.bodies, self.cases = {}, []
        for m in DEFINE.finditer(code):
            self.bodies.setdefault(m.group(1), []).append(m.group(2))
        code = DEFINE.sub(blank, code)
        self.code = code
        for m in TEST_CASE.finditer(code):
            close = ends.get(m.end() - 1, m.end())
            if (brace := code.find("{", close)) >= 0:
                self.cases.append((m.start(), code[brace : ends.get(brace, len(code))]))
        for m in CALL.finditer(code):
            if m.group(1) not in KEYWORDS and not TEST_CASE.match(m.group(0)):
                self._add(m.group(1), code, ends, ends.get(m.end() - 1))
        for m in LAMBDA.finditer(code):
            close = ends.get(m.end() - 1)
            if close and (parameters := re.compile(r"\s*(?:<[^(){}]*>\s*)?\(").match(code, close + 1)):
                close = ends.get(parameters.end() - 1)
            self._add(m.group(1), code, ends, close)

    def _add(self, name, code, ends, close):
        tail = TAIL.match(code, close + 1) if close else None
        if tail:
            self.bodies.setdefault(name, []).append(code[tail.end() : ends.get(tail.end() - 1, len(code))])


class Tests:
    def __init__(self, files):
        """files: path -> text, of the whole project."""
        self.files = {path: File(text) for path, text in files.items()
                      if path.startswith("tests/") and path.endswith((".cc", ".h"))}
        self._reached, self._known = {}, {}

    def reached(self, path):
        """The files, besides its own, whose definitions `path` can use."""
        if path not in self._reached:
            found, todo = {path}, [path]
            while todo:
                at = todo.pop()
                for target in self.files[at].includes:
                    for name in (target, os.path.join(os.path.dirname(at), target)):
                        for one in (name, os.path.splitext(name)[0] + ".cc"):
                            if one in self.files and one not in found:
                                found.add(one)
                                todo.append(one)
            self._reached[path] = found - {path}
        return self._reached[path]

    def function_asserts(self, path, name):
        key = path, name
        if key not in self._known:
            self._known[key] = False  # a function that only calls itself asserts nothing
            own = self.files[path].bodies.get(name)
            places = [(path, own)] if own else [(p, self.files[p].bodies[name]) for p in sorted(self.reached(path))
                                                if name in self.files[p].bodies]
            self._known[key] = bool(places) and all(self.asserts(p, body) for p, bodies in places for body in bodies)
        return self._known[key]

    def asserts(self, path, code):
        return bool(ASSERTION.search(code)) or any(self.function_asserts(path, name) for name in set(CALL.findall(code)))

    def findings(self, path):
        """(line, text) of each test case that asserts nothing."""
        file = self.files[path]
        line = lambda at: file.code.count("\n", 0, at) + 1
        for m in IGNORED_CHECK.finditer(file.code):
            yield line(m.end()), "what rc::check answers is not looked at"
        if not file.cases and not self.asserts(path, file.code):
            yield 1, "asserts nothing"
        for at, body in file.cases:
            if not self.asserts(path, body):
                yield line(at), "this case asserts nothing"
