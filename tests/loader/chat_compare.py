#!/usr/bin/env python3
"""Makes random templates and what jinja2 renders them to, as cases for chat_cases_test.cc.

usage: chat_compare.py OUT.json [COUNT] [SEED]     needs jinja2 (pip); the environment is Hugging Face's
To compare on many: chat_compare.py /tmp/cases.json 5000 7 && FORGE_CHAT_CASES=/tmp/cases.json loader_chat_test "[cases]"
"""
import copy, datetime, json, random, re, sys
import jinja2, jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "s": "Hello wörld", "t": "  a,b;c d\n", "e": "", "u": "ǅ ßtraße ΑΣ", "n": 7, "m": -3, "f": 2.5, "g": 1e16, "b": True,
    "z": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"x": 1, "y": [1, 2], "items": "it"}, "nest": [[1, 2], [3, 4]],
    "msgs": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo'\"", "n": 1},
             {"role": "user", "content": "é\t\\", "n": 3}],
}
TEXTS = ["s", "t", "e", "u", "'a b'", "\"it's\"", "'x\\ny'", "msgs[1].content", "s[1:4]", "s[::-1]", "d['items']"]
NUMBERS = ["n", "m", "f", "b", "0", "3", "-2", "2.0", "1e3", "g", "l|length", "d.x"]
LISTS = ["l", "w", "nest", "msgs", "[1, 'a', none]", "(1, 2)", "range(4)", "d.keys()", "d", "s.split()", "l[1:]", "[]"]
OTHER = ["z", "missing", "d.q", "true", "{'k': 1, 2: 'v'}", "d.get('x')", "d['items']"]
TEXT_OPS = ["|upper", "|lower", "|title", "|capitalize", "|trim", "|length", "|replace('a', 'ZZ')", "|indent(2)", ".strip()",
            ".split(',')", ".rsplit(' ', 1)", ".title()", ".swapcase()", ".find('l')", ".rfind('o')", ".center(15, '*')",
            ".zfill(13)", "|center(14)", ".startswith('H')", ".partition('o')", ".upper()", ".casefold()", "|wordcount",
            "|reverse", "|first", "|last", "|list", "|tojson", "|int", "|float(1.5)", "[0]", "[-1]", "[99]", "[1:-1]",
            ".splitlines()", "|truncate(6)", "|urlencode", "|escape", " * 2", " + 'é'", " ~ 1.0", ".count('')", "|string",
            ".isalpha()", ".islower()", ".istitle()", "|default('x', true)", ".join(['1','2'])", "|format(1)", " % 3",
            ".rpartition(' ')", ".removeprefix('He')", ".expandtabs(4)", ".lstrip(' H')", ".capitalize()", "|unique|list"]
NUMBER_OPS = ["|abs", "|round", "|round(1)", "|round(-1)", "|round(1, 'floor')", "|int", "|float", " + 1", " - 0.5", " * 3",
              " / 4", " // 2", " // -2.0", " % 3", " % -2.5", " ** 2", "|string", "|tojson", "|filesizeformat", " ~ 'x'",
              " == 7", " < 3", " >= 2.5", " in [1, 7]", " is odd", " is number", " is integer", " is float", "|default(1)",
              " is divisibleby 3", " and 5", " or 'no'"]
LIST_OPS = ["|sort", "|sort(reverse=true)", "|list", "|join(', ')", "|first", "|last", "|length", "|reverse|list", "|sum",
            "|max", "|min", "|unique|list", "|map('string')|list", "|map('upper')|join('-')", "|select|list", "|select('odd')|list",
            "|reject('equalto', 1)|list", "|batch(2)|list", "|batch(3, 'f')|list", "|slice(2)|list", "|tojson", "|tojson(indent=2)",
            "[0]", "[-1]", "[1:]", "[::-1]", "[::2]", " + [9]", " * 2", "|map(attribute='role')|list", "|groupby('role')|list",
            "|selectattr('role', 'equalto', 'user')|list", "|rejectattr('n', 'gt', 1)|list", "|sort(attribute='n')|list",
            "|map(attribute='n')|sum", "|dictsort", "|items|list", "|string", ".index(2)", ".count(1)", "|join('', attribute='role')",
            " is sequence", " is mapping", " is iterable", "|sort(attribute='role,n')", "|max(attribute='n')", ".append(1)", " == l"]
FORMATS = ["'%s-%r' % (A, B)", "'%5.1f|%-4d|%+d' % (NUM, 3, 4)", "'{} {!r} {:>6}'.format(A, B, 'q')", "'%x %o %e %g' % (255, 8, NUM, NUM)",
           "'{:08.3f} {:,} {:x}'.format(NUM, 1234567, 255)", "'{0[0]} {a.x}'.format(LIST, a=d)", "'%05d %%' % (NUM,)", "'{:^9}|{:<5}'.format(A, n)"]


class Maker:
    def __init__(self, seed): self.r = random.Random(seed)

    def expr(self, depth=2):
        r, kind = self.r, self.r.random()
        if kind < 0.3: text, ops = r.choice(TEXTS), TEXT_OPS
        elif kind < 0.5: text, ops = r.choice(NUMBERS), NUMBER_OPS
        elif kind < 0.78: text, ops = r.choice(LISTS), LIST_OPS
        elif kind < 0.84:
            text = r.choice(FORMATS).replace("NUM", r.choice(NUMBERS)).replace("LIST", r.choice(LISTS))
            return text.replace("A", r.choice(TEXTS + OTHER)).replace("B", r.choice(LISTS + NUMBERS))
        elif kind < 0.9 and depth:
            return f"({self.expr(depth - 1)}) {r.choice(['+', '==', '!=', 'and', 'or', '~', '<', 'in', '*', 'if b else'])} ({self.expr(depth - 1)})"
        else: text, ops = r.choice(OTHER), [" is defined", " is none", "|default('dflt')", " is string", "|tojson", "|string", " == none", "|length", "|list", ""]
        for _ in range(r.choice([0, 1, 1, 1, 2])):
            text = f"({text})" if " " in text and r.random() < 0.7 else text
            text += r.choice(ops if r.random() < 0.85 else TEXT_OPS + LIST_OPS + NUMBER_OPS)
        return text

    def body(self, depth):
        return "".join(self.node(depth) for _ in range(self.r.randint(1, 3)))

    def tag(self, text):
        return "{%" + self.r.choice(["", "", "", "-", "+"]) + f" {text} " + self.r.choice(["", "", "", "-", "+"]) + "%}"

    def node(self, depth):
        r, kind = self.r, self.r.random()
        space = lambda: r.choice(["", "", " ", "\n", "\n  ", " \n"])
        if depth == 0 or kind < 0.45: return space() + "{{" + r.choice(["", "-"]) + f" {self.expr()} " + r.choice(["", "-"]) + "}}" + space()
        if kind < 0.5: return space() + r.choice(["{# c #}", "{#- c -#}", "text", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% a {%- endraw +%}"]) + space()
        inner = space() + self.body(depth - 1) + space()
        if kind < 0.62: return self.tag(f"if {self.expr(1)}") + inner + (self.tag("else") + self.body(depth - 1) if r.random() < 0.5 else "") + self.tag("endif") + space()
        if kind < 0.82:
            extra = r.choice(["{{ loop.index }}", "{{ loop.last }},", "{{ loop.revindex0 }}/{{ loop.length }}", "{{ x }}", "{% if loop.index0 == 1 %}{% continue %}{% endif %}",
                              "{% if loop.index == 2 %}{% break %}{% endif %}", "{{ loop.cycle('a', 'b') }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.changed(x) }}", "{% set n = n ~ 1 %}{{ n }}", "{% set ns.c = ns.c + 1 %}{{ ns.c }}"])
            test = r.choice(["", "", " if x", " if ns.c < 2", " if x != 1"])
            return self.tag(f"for x in {r.choice(LISTS)}{test}") + extra + inner + r.choice(["", self.tag("else") + "none"]) + self.tag("endfor") + space()
        if kind < 0.88: return self.tag(f"set v = {self.expr()}") + "{{ v }}" + space()
        if kind < 0.92: return self.tag("set v") + inner + self.tag("endset") + "[{{ v|trim }}]"
        if kind < 0.95: return self.tag(f"with q = {self.expr(1)}, n = 5") + "{{ q }}{{ n }}" + inner + self.tag("endwith")
        if kind < 0.98: return self.tag("macro mm(a, b=2, c=a)") + "{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}" + inner + self.tag("endmacro") + f"{{{{ mm({self.expr(0)}, c=1) }}}}{{{{ mm(1, 2, 3, 4, k=5) }}}}"
        return self.tag("macro cc()") + "<{{ caller(1) }}>" + self.tag("endmacro") + self.tag("call(p) cc()") + "{{ p }}" + inner + self.tag("endcall")


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.filters["tojson"] = tojson
    env.globals["strftime_now"] = datetime.datetime(2026, 1, 15, 12, 30).strftime
    return env


def main():
    path, count, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    maker, env, cases = Maker(seed), environment(), []
    while len(cases) < count:
        template = "{% set ns = namespace(c=0) %}" + maker.body(2)
        case = {"template": template}
        # jinja2 folds slices of constant numbers and dicts to undefined; computed ones raise, and forge raises for both.
        if re.search(r"[0-9}]\)?\[[^\]]*:", template): continue
        try: case["output"] = env.from_string(template).render(**copy.deepcopy(CONTEXT))  # |indent changes a list it is given
        except Exception as error: case["error"] = f"{type(error).__name__}: {error}"
        text = case.get("output", "")
        # Addresses and integers past 64 bits are not forge's to print.
        if "0x7f" in text.lower() or " object " in text or "'0', 'x', '7'" in text.lower() or any(len(w) > 17 and w.strip("-").isdigit() for w in text.split()): continue
        if "error" in case and maker.r.random() < 0.6: continue
        cases.append(case)
    with open(path, "w") as out:
        json.dump({"messages": [], "context": CONTEXT, "cases": cases}, out, ensure_ascii=False, indent=0)
        out.write("\n")


main()
