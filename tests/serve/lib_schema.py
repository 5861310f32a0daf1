"""Checks JSON values against the schemas of serve/protocol/openapi.json. Supports only the keywords that the answers' schemas
use; an unknown keyword is an error, so that no constraint is silently ignored. Source: JSON Schema 2020-12.
"""
import json
import os

OPENAPI = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../serve/protocol/openapi.json")))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
IGNORED = {"description", "default", "examples"}


def is_type(name, value):
    if name in ("integer", "number"):
        return isinstance(value, int if name == "integer" else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def faults(schema, value, at="$"):
    """What is wrong with `value`, one line each; empty if it fits the schema."""
    wrong = []
    for keyword, what in schema.items():
        if keyword == "$ref":
            wrong += faults(resolve(what), value, at)
        elif keyword == "anyOf":
            tried = [faults(one, value, at) for one in what]
            if all(tried):
                wrong += min(tried, key=len)
        elif keyword == "type":
            if not any(is_type(name, value) for name in ([what] if isinstance(what, str) else what)):
                wrong.append(f"{at}: {value!r} is no {what}")
        elif keyword in ("const", "enum"):
            if value not in ([what] if keyword == "const" else what):
                wrong.append(f"{at}: {value!r} is not {what}")
        elif keyword in ("minimum", "maximum"):
            if is_type("number", value) and (value < what if keyword == "minimum" else value > what):
                wrong.append(f"{at}: {value} is beyond {what}")
        elif keyword == "required":
            wrong += [f"{at}: no {name}" for name in what if isinstance(value, dict) and name not in value]
        elif keyword == "minItems":
            if isinstance(value, list) and len(value) < what:
                wrong.append(f"{at}: {len(value)} items")
        elif keyword == "items":
            for i, item in enumerate(value if isinstance(value, list) else []):
                wrong += faults(what, item, f"{at}[{i}]")
        elif keyword == "properties":
            for name in what.keys() & (value.keys() if isinstance(value, dict) else ()):
                wrong += faults(what[name], value[name], f"{at}.{name}")
        elif keyword == "additionalProperties":
            for name in (value.keys() if isinstance(value, dict) else set()) - schema.get("properties", {}).keys():
                if what is False:
                    wrong.append(f"{at}: {name} is unknown")
                elif what is not True:
                    wrong += faults(what, value[name], f"{at}.{name}")
        elif keyword not in IGNORED:
            raise ValueError(f"the schema's keyword {keyword} is not known here")
    return wrong


def resolve(reference):
    found = OPENAPI
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def answer_of(path):
    """The media types of the 200 answer of a POST route."""
    return OPENAPI["paths"][path]["post"]["responses"]["200"]["content"]
