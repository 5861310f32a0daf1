#!/usr/bin/env python3
"""Generates random chat templates and records hashes of jinja2's output, for chat_cases_test.cc.

usage: chat_compare.py OUT.json [COUNT] [SEED] [--texts]
    python3 -m venv V && V/bin/pip install jinja2==3.1.6
    V/bin/python tests/text/chat_compare.py tests/text/chat_cases.json         the file in the repository: 2,000 of seed 1
    V/bin/python tests/text/chat_compare.py /tmp/c.json 5000 7 --texts && FORGE_CHAT_CASES=/tmp/c.json loader_chat_test "[cases]"

OUT has the grammar and the seed, from which C++ generates the same templates, and one entry per template: a hash of jinja2's
output, '!' if jinja2 refuses it, '-' if the output is not compared. COUNT templates are rendered. --texts also writes the
outputs, for debugging. The jinja2 environment is the one of Hugging Face's transformers.
"""
import copy, datetime, json, re, sys, warnings
import jinja2, jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from splitmix import SplitMix

CONTEXT = {
    "s": "Hello wörld", "t": "  a,b;c d\n", "e": "", "u": "ǅ ßtraße ΑΣ", "n": 7, "m": -3, "f": 2.5, "g": 1e16, "b": True,
    "z": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"x": 1, "y": [1, 2], "items": "it"}, "nest": [[1, 2], [3, 4]],
    "msgs": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": "yo'\"", "n": 1},
             {"role": "user", "content": "é\t\\", "n": 3}],
}
# Rule -> groups of [weight, alternatives of equal weight]. '@rule@' expands that rule, '@^rule@' expands it one nesting level
# deeper (not used at level 0), '@rule:2@' expands it with two levels left.
GRAMMAR = {
    "template": [[1, "{% set ns = namespace(c=0) %}@body@"]],
    "body": [[1, "@node@", "@node@@node@", "@node@@node@@node@"]],
    "node": [[45, "@sp@{{@dash@ @expr:2@ @dash@}}@sp@"],
             [5, "@sp@@other@@sp@"],
             [12, "{%@m@ if @expr:1@ @m@%}@sp@@^body@@sp@@else@{%@m@ endif @m@%}@sp@"],
             [20, "{%@m@ for x in @list@@if@ @m@%}@turn@@sp@@^body@@sp@@none@{%@m@ endfor @m@%}@sp@"],
             [6, "{%@m@ set v = @expr:2@ @m@%}{{ v }}@sp@"],
             [4, "{%@m@ set v @m@%}@sp@@^body@@sp@{%@m@ endset @m@%}[{{ v|trim }}]"],
             [3, "{%@m@ with q = @expr:1@, n = 5 @m@%}{{ q }}{{ n }}@sp@@^body@@sp@{%@m@ endwith @m@%}"],
             [3, "{%@m@ macro mm(a, b=2, c=a) @m@%}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}@sp@@^body@@sp@{%@m@ endmacro @m@%}"
                 "{{ mm(@expr:0@, c=1) }}{{ mm(1, 2, 3, 4, k=5) }}"],
             [2, "{%@m@ macro cc() @m@%}<{{ caller(1) }}>{%@m@ endmacro @m@%}{%@m@ call(p) cc() @m@%}{{ p }}@sp@@^body@@sp@{%@m@ endcall @m@%}"]],
    "sp": [[1, "", "", " ", "\n", "\n  ", " \n"]],
    "dash": [[1, "", "-"]],
    "m": [[1, "", "", "", "-", "+"]],
    "other": [[1, "{# c #}", "{#- c -#}", "text", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% a {%- endraw +%}"]],
    "else": [[1, "", "{%@m@ else @m@%}@body@"]],
    "none": [[1, "", "{%@m@ else @m@%}none"]],
    "if": [[1, "", "", " if x", " if ns.c < 2", " if x != 1"]],
    "turn": [[1, "{{ loop.index }}", "{{ loop.last }},", "{{ loop.revindex0 }}/{{ loop.length }}", "{{ x }}",
              "{% if loop.index0 == 1 %}{% continue %}{% endif %}", "{% if loop.index == 2 %}{% break %}{% endif %}",
              "{{ loop.cycle('a', 'b') }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.changed(x) }}",
              "{% set n = n ~ 1 %}{{ n }}", "{% set ns.c = ns.c + 1 %}{{ ns.c }}"]],
    "expr": [[30, "@text@", "@text@@textop@", "@text@@textop@", "(@text@@textop@)@textop@"], [3, "@text@@anyop@"],
             [20, "@number@", "@number@@numberop@", "@number@@numberop@", "(@number@@numberop@)@numberop@"], [2, "@number@@anyop@"],
             [28, "@list@", "@list@@listop@", "@list@@listop@", "(@list@@listop@)@listop@"], [3, "@list@@anyop@"], [6, "@format@"],
             [6, "(@^expr@) @operator@ (@^expr@)"], [4, "@folded@"], [6, "@value@@valueop@"]],
    "anyop": [[1, "@textop@", "@numberop@", "@listop@"]],
    "operator": [[1, "+", "==", "!=", "and", "or", "~", "<", "in", "*", "if b else"]],
    # Constants, which jinja2 folds at compile time; a slice of a value without slices is then undefined.
    "folded": [[1, "(@constant@)@slice@", "(@constant@)@slice@@anyop@", "(@constant@)@slice@|default('x')", "[(@constant@)@slice@, @constant@]",
                "((@constant@)@slice@|default(@constant@)) ~ @number@", "(@constant@ if @constant@)@slice@", "(@constant@)@slice@ is defined"]],
    "constant": [[1, "3", "'a b'", "true", "none", "2.5", "[1, 2]", "(1, 'x')", "{'k': 1}", "1 < 2", "[] in [1]", "'a' ~ 1", "not 1", "-2", "'x'|upper",
                  "[1, 2]|last", "[1]|map('string')|list", "s"]],
    "slice": [[1, "[1:]", "[::-1]", "['x':]", "[:2]", "[::0]", "[n:]"]],
    "text": [[1, "s", "t", "e", "u", "'a b'", "\"it's\"", "'x\\ny'", "msgs[1].content", "s[1:4]", "s[::-1]", "d['items']"]],
    "number": [[1, "n", "m", "f", "b", "0", "3", "-2", "2.0", "1e3", "g", "l|length", "d.x"]],
    "list": [[1, "l", "w", "nest", "msgs", "[1, 'a', none]", "(1, 2)", "range(4)", "d.keys()", "d", "s.split()", "l[1:]", "[]"]],
    "value": [[1, "z", "missing", "d.q", "true", "{'k': 1, 2: 'v'}", "d.get('x')", "d['items']"]],
    "valueop": [[1, " is defined", " is none", "|default('dflt')", " is string", "|tojson", "|string", " == none", "|length", "|list", "", "@anyop@"]],
    "textop": [[1, "|upper", "|lower", "|title", "|capitalize", "|trim", "|length", "|replace('a', 'ZZ')", "|indent(2)", ".strip()",
                ".split(',')", ".rsplit(' ', 1)", ".title()", ".swapcase()", ".find('l')", ".rfind('o')", ".center(15, '*')",
                ".zfill(13)", "|center(14)", ".startswith('H')", ".partition('o')", ".upper()", ".casefold()", "|wordcount",
                "|reverse", "|first", "|last", "|list", "|tojson", "|int", "|float(1.5)", "[0]", "[-1]", "[99]", "[1:-1]",
                ".splitlines()", "|truncate(6)", "|urlencode", "|escape", " * 2", " + 'é'", " ~ 1.0", ".count('')", "|string",
                ".isalpha()", ".islower()", ".istitle()", "|default('x', true)", ".join(['1','2'])", "|format(1)", " % 3",
                ".rpartition(' ')", ".removeprefix('He')", ".expandtabs(4)", ".lstrip(' H')", ".capitalize()", "|unique|list"]],
    "numberop": [[1, "|abs", "|round", "|round(1)", "|round(-1)", "|round(1, 'floor')", "|int", "|float", " + 1", " - 0.5", " * 3",
                  " / 4", " // 2", " // -2.0", " % 3", " % -2.5", " ** 2", "|string", "|tojson", "|filesizeformat", " ~ 'x'",
                  " == 7", " < 3", " >= 2.5", " in [1, 7]", " is odd", " is number", " is integer", " is float", "|default(1)",
                  " is divisibleby 3", " and 5", " or 'no'"]],
    "listop": [[1, "|sort", "|sort(reverse=true)", "|list", "|join(', ')", "|first", "|last", "|length", "|reverse|list", "|sum",
                "|max", "|min", "|unique|list", "|map('string')|list", "|map('upper')|join('-')", "|select|list", "|select('odd')|list",
                "|reject('equalto', 1)|list", "|batch(2)|list", "|batch(3, 'f')|list", "|slice(2)|list", "|tojson", "|tojson(indent=2)",
                "[0]", "[-1]", "[1:]", "[::-1]", "[::2]", " + [9]", " * 2", "|map(attribute='role')|list", "|groupby('role')|list",
                "|selectattr('role', 'equalto', 'user')|list", "|rejectattr('n', 'gt', 1)|list", "|sort(attribute='n')|list",
                "|map(attribute='n')|sum", "|dictsort", "|items|list", "|string", ".index(2)", ".count(1)", "|join('', attribute='role')",
                " is sequence", " is mapping", " is iterable", "|sort(attribute='role,n')", "|max(attribute='n')", ".append(1)", " == l"]],
    "format": [[1, "'%s-%r' % (@a@, @b@)", "'%5.1f|%-4d|%+d' % (@number@, 3, 4)", "'{} {!r} {:>6}'.format(@a@, @b@, 'q')",
                "'%x %o %e %g' % (255, 8, @number@, @number@)", "'{:08.3f} {:,} {:x}'.format(@number@, 1234567, 255)",
                "'{0[0]} {a.x}'.format(@list@, a=d)", "'%05d %%' % (@number@,)", "'{:^9}|{:<5}'.format(@a@, n)"]],
    "a": [[1, "@text@", "@value@"]],
    "b": [[1, "@list@", "@number@"]],
}


class Templates(SplitMix):
    """Expands the grammar. Must equal Templates in chat_cases_test.cc."""

    def expand(self, rule="template", depth=2):
        groups = [g for g in GRAMMAR[rule] if depth or "@^" not in g[1]]
        at = self.below(sum(g[0] for g in groups))
        for group in groups:
            if at < group[0]: break
            at -= group[0]
        parts = group[1 + self.below(len(group) - 1)].split("@")
        for i in range(1, len(parts), 2):
            name, _, levels = parts[i].partition(":")
            parts[i] = self.expand(name[1:], depth - 1) if name[0] == "^" else self.expand(name, int(levels) if levels else depth)
        return "".join(parts)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.filters["tojson"] = tojson
    env.globals["strftime_now"] = datetime.datetime(2026, 1, 15, 12, 30).strftime
    return env


def digest(text):
    """FNV-1a, 32 bits."""
    h = 0x811C9DC5
    for byte in text.encode(): h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{h:08x}"


def main():
    warnings.simplefilter("ignore")  # Python warns about unsupported slices
    words = [word for word in sys.argv[1:] if word != "--texts"]
    path, count, seed = words[0], int(words[1]) if len(words) > 1 else 2000, int(words[2]) if len(words) > 2 else 1
    templates, env, digests, texts = Templates(seed), environment(), [], []
    while sum(len(d) > 1 for d in digests) < count:
        template = templates.expand()
        try: text = env.from_string(template).render(**copy.deepcopy(CONTEXT))  # the filter indent modifies a list argument
        except Exception as error: digests.append("!"), texts.append(f"{type(error).__name__}: {error}")
        else:
            # Not compared: addresses, and integers beyond 64 bits, which forge does not have.
            skip = "0x7f" in text.lower() or " object " in text or "'0', 'x', '7'" in text.lower() or re.search(r"[0-9]{18}", text)
            digests.append("-" if skip else digest(text))
            texts.append(text)
    case = {"messages": [], "made_by": f"chat_compare.py with jinja2 {jinja2.__version__}", "seed": seed, "context": CONTEXT, "grammar": GRAMMAR,
            "digests": [" ".join(digests[i:i + 16]) for i in range(0, len(digests), 16)]}
    if "--texts" in sys.argv: case["texts"] = texts
    with open(path, "w") as out:
        json.dump(case, out, ensure_ascii=False, indent=0)
        out.write("\n")


main()
