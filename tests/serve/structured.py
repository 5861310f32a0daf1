#!/usr/bin/env python3
"""forge-serve's structured output over HTTP: whole and streamed, with samples, log-probabilities, stops and biases, in company,
and refusals.

usage: FORGE_BIN=DIR structured.py
"""
import json
import re
import threading

from lib_serve import Server, case, finish, tiny

PATTERN = r'\{"name": "[a-z]{3,8}", "age": [1-9][0-9]?\}'
BODY = {"prompt": "the cat", "max_tokens": 80, "temperature": 1, "seed": 4}
CHAT = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 80, "temperature": 1, "seed": 4}


def answers(server):
    status, whole = server.post("/v1/completions", BODY | {"guided_regex": PATTERN})
    choice = whole["choices"][0]
    case("a completion fits the expression and stops", status == 200 and re.fullmatch(PATTERN, choice["text"])
         and choice["finish_reason"] == "stop", whole)
    events = server.stream("/v1/completions", BODY | {"guided_regex": PATTERN, "stream": True}).events()
    text = "".join(e["choices"][0]["text"] for e in events[:-1] if e["choices"])
    case("the stream has the same text", text == choice["text"], text)
    several = server.post("/v1/completions", BODY | {"guided_regex": PATTERN, "n": 4})[1]["choices"]
    case("each of several samples fits", all(re.fullmatch(PATTERN, c["text"]) for c in several)
         and len({c["text"] for c in several}) > 1 and several[0]["text"] == choice["text"], several)
    logged = server.post("/v1/completions", BODY | {"guided_regex": PATTERN, "logprobs": 1})[1]
    case("every token has its log-probability", re.fullmatch(PATTERN, logged["choices"][0]["text"])
         and len(logged["choices"][0]["logprobs"]["tokens"]) == logged["usage"]["completion_tokens"], logged)
    other = {"logit_bias": {"5": -100, "70": 2}, "repetition_penalty": 1.2, "min_p": 0.01, "top_k": 30}
    case("with bias, penalty and filters", re.fullmatch(
        PATTERN, server.post("/v1/completions", BODY | other | {"guided_regex": PATTERN})[1]["choices"][0]["text"]))
    stopped = server.post("/v1/completions", BODY | {"guided_regex": PATTERN, "stop": "age"})[1]["choices"][0]
    case("a stop string ends it within forced text", stopped["finish_reason"] == "stop"
         and stopped["text"] == choice["text"].split("age")[0], stopped)
    cut = server.post("/v1/completions", BODY | {"guided_regex": PATTERN, "max_tokens": 5})[1]
    case("so does the token limit", cut["choices"][0]["finish_reason"] == "length"
         and cut["usage"]["completion_tokens"] == 5, cut)
    chat = server.post("/v1/chat/completions", CHAT | {"structured_outputs": {"choice": ["yes", "no", "a|b (c)"]}})[1]
    case("a chat", chat["choices"][0]["message"]["content"] in ("yes", "no", "a|b (c)"), chat)
    plain = server.post("/v1/chat/completions", CHAT | {"response_format": {"type": "text"}})
    case("response_format text constrains nothing", plain[1]["choices"][0]["message"]["content"]
         == server.post("/v1/chat/completions", CHAT)[1]["choices"][0]["message"]["content"], plain)


def company(server):
    """16 constrained and free requests at once and one after another give the same texts."""
    bodies = [BODY | {"seed": i, "max_tokens": 40} | ({"guided_regex": PATTERN} if i % 2 else {}) for i in range(16)]
    together = [None] * len(bodies)

    def ask(i):
        together[i] = server.post("/v1/completions", bodies[i])[1]["choices"][0]["text"]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case("in company and alone", together == [server.post("/v1/completions", b)[1]["choices"][0]["text"] for b in bodies])


def refusals(server):
    def refused(extra, param, chat=False):
        status, answer = server.post("/v1/chat/completions" if chat else "/v1/completions", (CHAT if chat else BODY) | extra)
        message = answer.get("error", {}).get("message", "")
        return status == 400 and answer["error"]["param"] == param and message and "\n" not in message, answer
    for chat in (False, True):
        case("a bad expression", *refused({"guided_regex": "(a"}, "guided_regex", chat))
        case("an impossible expression", *refused({"structured_outputs": {"regex": "[^\\s\\S]"}}, "structured_outputs", chat))
        case("two constraints", *refused({"guided_regex": "a", "grammar": "b"}, "grammar", chat))
        case("a schema that is none", *refused({"guided_json": 5}, "guided_json", chat))
        case("a schema that is no JSON", *refused({"guided_json": "{"}, "guided_json", chat))
        case("a grammar that is none", *refused({"grammar": "root ::= missing"}, "grammar", chat))
        case("an unknown format", *refused({"response_format": {"type": "yaml"}}, "response_format", chat))


running = Server(tiny(context=512), "--parallel", 16)
for part in (answers, company, refusals):
    part(running)
case("it ends well", running.stop() == 0, running.lines[-3:])
finish()
