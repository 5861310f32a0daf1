#!/usr/bin/env python3
"""The official `openai` package, unmodified, works with forge-serve on a generated model.

usage: FORGE_BIN=DIR openai_client.py     with a Python that has the package: ninja -C BUILD serve_openai makes one
"""
import asyncio

import openai

from lib_serve import Server, case, finish, tiny, write

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the cat"}]
LONG = {"max_tokens": 60000, "extra_body": {"ignore_eos": True}}


def error_of(call):
    try:
        call()
    except openai.APIError as error:
        return error
    return None


def chat(client):
    make = client.chat.completions.create
    body = {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 12, "seed": 4,
            "extra_body": {"ignore_eos": True}}
    whole = make(**body)
    message = whole.choices[0].message
    case("chat", message.role == "assistant" and message.content and whole.choices[0].finish_reason == "length", whole)
    case("chat usage", whole.usage.completion_tokens == 12 and whole.usage.total_tokens == 12 + whole.usage.prompt_tokens
         and whole.usage.prompt_tokens_details.cached_tokens >= 0, whole.usage)
    case("the request id", whole._request_id and whole._request_id in whole.id, whole._request_id)
    case("the same seed gives the same text", make(**body).choices[0].message.content == message.content)
    chunks = list(make(**body, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    case("a stream has the same text", text == message.content, text)
    case("the stream has its usage", chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices, chunks[-1])
    case("the stream gives its finish reason once", [c.choices[0].finish_reason for c in chunks if c.choices].count("length") == 1)
    probabilities = make(**body, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    case("logprobs", len(probabilities) == 12 and all(len(p.top_logprobs) == 3 and p.logprob <= 0 for p in probabilities)
         and bytes(b for p in probabilities for b in p.bytes).decode(errors="replace") == message.content, probabilities)
    several = make(**body, n=3)
    case("n samples", [c.index for c in several.choices] == [0, 1, 2] and several.usage.completion_tokens == 36
         and len({c.message.content for c in several.choices}) == 3, several)
    stop = message.content[3:5]
    stopped = make(**body, stop=[stop])
    case("a stop string", stopped.choices[0].finish_reason == "stop"
         and stopped.choices[0].message.content == message.content[:message.content.index(stop)], stopped)
    with client.chat.completions.stream(**body, stop=[stop]) as stream:  # the package raises an error for "length" here
        final = stream.get_final_completion()
    case("the stream helper", final.choices[0].message.content == stopped.choices[0].message.content, final)
    parts = [{"role": "user", "content": [{"type": "text", "text": "the cat"}]}]
    case("content in parts", make(model="tiny", messages=parts, max_tokens=2).choices[0].message is not None)


def completion(client):
    make = client.completions.create
    body = {"model": "tiny", "prompt": "the cat", "max_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}}
    whole = make(**body, logprobs=2)
    case("completion", len(whole.choices[0].logprobs.tokens) == 8 and whole.usage.completion_tokens == 8, whole)
    case("completion stream", "".join(c.choices[0].text for c in make(**body, stream=True)) == whole.choices[0].text)
    case("several prompts", len(make(**body | {"prompt": ["a", "b"]}, n=2).choices) == 4)
    case("logit bias", make(**body, logit_bias={str(i): 100 if i == 97 else -100 for i in range(260)}).choices[0].text
         == "a" * 8)
    case("models", [m.id for m in client.models.list()] == ["tiny"] and client.models.retrieve("tiny").owned_by == "forge")


def embeddings(client):
    make = client.embeddings.create  # asks for base64 by default
    answer = make(model="tiny", input=["the cat", "a dog"])
    vectors = [d.embedding for d in answer.data]
    case("embeddings", len(vectors) == 2 and all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in vectors)
         and answer.usage.total_tokens == answer.usage.prompt_tokens > 2, answer)
    plain = make(model="tiny", input="the cat", encoding_format="float").data[0].embedding
    case("embeddings as lists of numbers", all(abs(a - b) < 1e-6 for a, b in zip(plain, vectors[0])) and len(plain) == len(vectors[0]))
    case("embeddings with fewer dimensions", len(make(model="tiny", input="the cat", dimensions=4).data[0].embedding) == 4)


def errors(client, server):
    make = client.chat.completions.create
    body = {"model": "tiny", "messages": MESSAGES}
    for name, call, kind, code in (
            ("a bad value", lambda: make(**body, temperature=5), openai.BadRequestError, "invalid_value"),
            ("an unknown member", lambda: make(**body, extra_body={"nix": 1}), openai.BadRequestError, "unknown_member"),
            ("another model", lambda: make(**body | {"model": "x"}), openai.NotFoundError, "model_not_found"),
            ("a long prompt", lambda: client.completions.create(model="tiny", prompt="x" * 70000), openai.BadRequestError,
             "context_length_exceeded"),
            ("an empty input", lambda: client.embeddings.create(model="tiny", input=""), openai.BadRequestError,
             "invalid_value"),
            ("a wrong key", lambda: client.with_options(api_key="x").models.list(), openai.AuthenticationError,
             "invalid_api_key")):
        error = error_of(call)
        case(name, isinstance(error, kind) and error.code == code and error.body["recoverable"] is False, error)
    slow = error_of(lambda: make(**body | LONG | {"extra_body": {"ignore_eos": True, "timeout": 0.05}}))
    case("a deadline", isinstance(slow, openai.InternalServerError) and slow.code == "deadline"
         and slow.body["recoverable"], slow)
    stream = make(**body, stream=True, max_tokens=60000, extra_body={"ignore_eos": True, "timeout": 0.05})
    error = error_of(lambda: list(stream))
    case("a deadline in a stream", error is not None and error.code == "deadline", error)


def cancellation(client, server):
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **LONG)
    next(iter(stream))
    stream.close()
    case("a closed stream is cancelled", idle(server))
    late = error_of(lambda: client.with_options(timeout=0.05).chat.completions.create(model="tiny", messages=MESSAGES, **LONG))
    case("the client's own timeout", isinstance(late, openai.APITimeoutError), late)
    case("the timeout cancels the request", idle(server))

    async def together():
        async with openai.AsyncOpenAI(base_url=str(client.base_url), api_key="key", max_retries=0) as many:
            tasks = [asyncio.create_task(many.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=8, seed=i))
                     for i in range(16)]
            gone = asyncio.create_task(many.chat.completions.create(model="tiny", messages=MESSAGES, **LONG))
            answers = await asyncio.gather(*tasks)
            gone.cancel()
            return answers
    case("16 at once, one cancelled", all(a.choices[0].message for a in asyncio.run(together())))
    case("nothing is left in the engine", idle(server))


def idle(server):
    def state():
        lines = server.request("GET", "/metrics", headers={"Authorization": "Bearer key"})[2].splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}
    server.metrics = state
    return server.idle()


running = Server(tiny(context=65536), "-c", 65536, "--parallel", 8, "--api-key-file", write("keys", b"key\n"))
official = openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="key", max_retries=0)
chat(official)
completion(official)
embeddings(official)
errors(official, running)
cancellation(official, running)
case("it ends well", running.stop() == 0)
finish()
