#!/usr/bin/env python3
"""Streamed answers, byte by byte and against serve/protocol/openapi.json: each event is one line of JSON that fits its schema,
each choice ends once, usage comes if requested, [DONE] comes last and once. Whole answers fit their schemas.

usage: FORGE_BIN=DIR streams.py
"""
import json
import random

from lib_schema import OPENAPI, answer_of, faults
from lib_serve import Server, case, finish, tiny

DONE = b"data: [DONE]\n\n"
CONVERSATIONS = [[{"role": "user", "content": "the cat"}],
                 [{"role": "system", "content": "é the"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]]


def random_body(dice, path):
    """A random valid request; many of the bytes that the model generates are not valid UTF-8 by themselves."""
    body = {"max_tokens": dice.randrange(1, 40), "temperature": dice.choice([0, 1, 1.7]), "seed": dice.randrange(99),
            "ignore_eos": dice.random() < 0.7}
    if path == "/generate/stream":
        return body | {"prompt": dice.choice(["a", "the cat " * 9])}
    if dice.random() < 0.5:
        body["stop"] = dice.sample(["a", "e", "the", "\n", "Q"], 2)
    if dice.random() < 0.4:
        body["n"] = dice.randrange(1, 4)
    if dice.random() < 0.6:
        body["stream_options"] = {"include_usage": dice.random() < 0.7}
    if path == "/v1/completions":
        body["prompt"] = dice.choice(["a", "the cat " * 9, ["a", "the"], [1, 2, 3]])
        return body | ({"logprobs": dice.randrange(0, 5)} if dice.random() < 0.4 else {})
    body["messages"] = dice.choice(CONVERSATIONS)
    return body | ({"logprobs": True, "top_logprobs": dice.randrange(0, 5)} if dice.random() < 0.4 else {})


def events_of(raw):
    """The JSON of each event. Raises ValueError if the bytes are not an event stream."""
    if not raw.endswith(b"\n\n"):
        raise ValueError("the last event has no end")
    events = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        if not block.startswith("data: ") or "\n" in block or "\r" in block:
            raise ValueError(f"no event of one line: {block!r}")
        events.append(json.loads(block.removeprefix("data: ")))
    return events


def faults_of_choices(events, usage, asked):
    """Checks that each choice ends once with nothing after it, and that requested usage is present and adds up."""
    wrong, ended, last = [], [], events[-1] if usage else None
    for event in events:
        if usage != ("usage" in event) or (event is not last and event.get("usage") is not None):
            wrong.append(f"usage: {event}")
        for choice in event["choices"]:
            if choice["index"] in ended:
                wrong.append(f"after its end: {choice}")
            if choice["finish_reason"] is not None:
                ended.append(choice["index"])
    prompts = len(asked["prompt"]) if isinstance(asked.get("prompt"), list) and isinstance(asked["prompt"][0], str) else 1
    if sorted(ended) != list(range(prompts * asked.get("n", 1))):
        wrong.append(f"choices that ended: {ended}")
    if usage and (last["choices"] or not last["usage"] or last["usage"]["total_tokens"]
                  != last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]):
        wrong.append(f"the last event: {last}")
    return wrong


def faults_of_stream(path, asked, raw):
    openai = path.startswith("/v1/")
    if openai and (not raw.endswith(DONE) or raw.count(DONE) != 1):
        return [f"no [DONE] as the end: {raw[-99:]!r}"]
    try:
        events = events_of(raw.removesuffix(DONE) if openai else raw)
    except ValueError as error:
        return [str(error)]
    schema = answer_of(path)["text/event-stream"]["x-event"]
    wrong = sum((faults(schema, event) for event in events), [])
    errors = [event for event in events if "error" in event]
    if errors or wrong:
        return wrong + [f"an error without a timeout, or not last: {events}"] * (errors not in ([], events[-1:]) or
                                                                                 (bool(errors) and "timeout" not in asked))
    if openai:
        return faults_of_choices(events, asked.get("stream_options", {}).get("include_usage", False), asked)
    return [] if [e["finished"] for e in events] == [False] * (len(events) - 1) + [True] else [f"the end: {events[-2:]}"]


def streams(server):
    for path in ("/v1/completions", "/v1/chat/completions", "/generate/stream"):
        for number in range(40):
            dice = random.Random(number)
            body = random_body(dice, path)
            if path.startswith("/v1/"):
                status, _, text = server.request("POST", path, {k: v for k, v in body.items() if k != "stream_options"})
                wrong = faults(answer_of(path)["application/json"]["schema"], json.loads(text))
                case(f"{path} {number}, whole", status == 200 and not wrong, (body, wrong[:3], text[:300]))
                body["stream"] = True
            stream = server.stream(path, body)
            kind, raw = stream.answer.headers["Content-Type"], stream.answer.read()
            stream.close()
            wrong = faults_of_stream(path, body, raw)
            case(f"{path} {number}, streamed", kind == "text/event-stream" and not wrong, (body, wrong[:3], raw[-300:]))


def deadlines(server):
    for path, prompt in (("/v1/completions", {"prompt": "a"}), ("/generate/stream", {"prompt": "a"}),
                         ("/v1/chat/completions", {"messages": CONVERSATIONS[0]})):
        body = prompt | {"max_tokens": 60000, "ignore_eos": True, "timeout": 0.05}
        stream = server.stream(path, body | ({"stream": True} if path.startswith("/v1/") else {}))
        raw = stream.answer.read()
        stream.close()
        case(f"{path}: a deadline is an event", b'"code":"deadline"' in raw and not faults_of_stream(path, body, raw),
             (faults_of_stream(path, body, raw)[:3], raw[-300:]))


def checker_sees():
    """Checks the checker: it accepts a valid stream and finds each kind of fault."""
    good = {"id": "a", "object": "text_completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "text": "x", "logprobs": None, "finish_reason": "stop"}]}
    event = b"data: " + json.dumps(good).encode() + b"\n\n"
    path, asked = "/v1/completions", {"prompt": "a"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    last = b"data: " + json.dumps(good | {"choices": [], "usage": usage}).encode() + b"\n\n"
    null = event.replace(b'"m"', b'"m","usage":null')
    wants = asked | {"stream_options": {"include_usage": True}}
    case("a valid stream is accepted", not faults_of_stream(path, asked, event + DONE), faults_of_stream(path, asked, event + DONE))
    case("a valid stream with usage is accepted", not faults_of_stream(path, wants, null + last + DONE))
    for name, of, raw in (("no [DONE]", asked, event), ("two", asked, event + DONE + DONE), ("bad JSON", asked, b"data: {\n\n" + DONE),
                          ("half an event", asked, event[:-1] + DONE), ("usage that nobody wants", asked, null + last + DONE),
                          ("no usage", wants, event + DONE), ("a choice that ends twice", asked, event + event + DONE),
                          ("none that ends", asked, event.replace(b'"stop"', b"null") + DONE),
                          ("another reason", asked, event.replace(b'"stop"', b'"x"') + DONE),
                          ("an unknown member", asked, event.replace(b'"m"', b'"m","nix":1') + DONE),
                          ("a wrong type", asked, event.replace(b'"x"', b"7") + DONE),
                          ("no choices", asked, event.replace(b'"choices"', b'"choice"') + DONE),
                          ("no UTF-8", asked, event.replace(b'"x"', b'"\xe2"') + DONE)):
        case(f"finds {name}", faults_of_stream(path, of, raw))
    for where, methods in OPENAPI["paths"].items():
        for method in methods.values():
            content = method["responses"].get("200", {}).get("content", {})
            case(f"{where}: events have a schema", "x-event" in content.get("text/event-stream", {"x-event": 0}))


checker_sees()
running = Server(tiny(context=65536), "-c", 65536, "--parallel", 4)
streams(running)
deadlines(running)
case("it ends well", running.stop() == 0, running.lines[-3:])
finish()
