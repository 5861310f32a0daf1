#!/usr/bin/env python3
"""forge-serve's answers on every route, streamed and whole, and that results are batch-invariant.

usage: FORGE_BIN=DIR answers.py
"""
import base64
import json
import struct
import subprocess
import threading

from lib_serve import BIN, Server, at, case, environment, finish, tiny, write

from lib_cli import gguf, tiny_parts  # noqa: E402

PROMPT = "the cat the"
model = tiny(context=512)


def states_and_models(server):
    case("health", server.get("/health")[::2] == (200, '{"status":"healthy"}'), server.get("/health"))
    case("ready", server.get("/ready")[::2] == (200, '{"status":"ready"}'))
    head = server.request("HEAD", "/health")
    case("HEAD is GET without the body", head[0] == 200 and head[2] == "" and head[1]["Content-Length"] == "20", head)
    listed = json.loads(server.get("/v1/models")[2])
    case("the list of models", [m["id"] for m in listed["data"]] == ["tiny"] and listed["data"][0]["max_model_len"] == 512, listed)
    case("one model", json.loads(server.get("/v1/models/tiny")[2]) == listed["data"][0])
    case("an unknown model", server.get("/v1/models/x")[0] == 404)
    status, answer = server.post("/v1/completions", {"model": "x", "prompt": "a"})
    case("a request for an unknown model", status == 404 and answer["error"]["code"] == "model_not_found", answer)


def completions(server):
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": True}
    status, whole = server.post("/v1/completions", body)
    choice = whole["choices"][0]
    case("a completion", status == 200 and whole["object"] == "text_completion" and choice["text"]
         and choice["finish_reason"] == "length", whole)
    case("the completion's usage", whole["usage"]["completion_tokens"] == 12 and whole["usage"]["prompt_tokens"] > 3
         and whole["usage"]["total_tokens"] == 12 + whole["usage"]["prompt_tokens"], whole["usage"])
    logprobs = choice["logprobs"]
    case("the completion's log-probabilities", len(logprobs["tokens"]) == 12 and len(logprobs["token_logprobs"]) == 12
         and all(x <= 0 for x in logprobs["token_logprobs"])
         and all(len(t) == 2 and max(t.values()) == p for t, p in
                 zip(logprobs["top_logprobs"], logprobs["token_logprobs"])), logprobs)
    events = server.stream("/v1/completions", body | {"stream": True, "stream_options": {"include_usage": True}}).events()
    pieces = [e for e in events[:-1] if e["choices"]]
    case("a stream ends with usage and [DONE]", events[-1] == "[DONE]"
         and events[-2]["usage"]["completion_tokens"] == 12 and events[-2]["choices"] == [], events[-2:])
    case("the stream has the same text", "".join(p["choices"][0]["text"] for p in pieces) == choice["text"], pieces)
    case("the stream has the same log-probabilities", sum((p["choices"][0]["logprobs"]["token_logprobs"] for p in pieces
         if p["choices"][0]["logprobs"]), []) == logprobs["token_logprobs"])
    case("ids as the prompt", server.post("/v1/completions", body | {"prompt": ids(server, PROMPT)})[1]["choices"][0]["text"]
         == choice["text"])
    several = server.post("/v1/completions", body | {"prompt": [PROMPT, "zz"], "n": 2, "temperature": 1, "seed": 5})[1]
    case("two prompts with two samples each give four choices", [c["index"] for c in several["choices"]] == [0, 1, 2, 3]
         and several["usage"]["completion_tokens"] == 48, several)
    text = choice["text"]
    stop = text[len(text) // 2:len(text) // 2 + 2]
    stopped = server.post("/v1/completions", body | {"stop": [stop, "never"]})[1]["choices"][0]
    case("a stop string ends the text and is not part of it", stopped["text"] == text[:text.index(stop)]
         and stopped["finish_reason"] == "stop", (text, stop, stopped))
    events = server.stream("/v1/completions", body | {"stop": stop, "stream": True, "logprobs": None}).events()
    case("the same in a stream", "".join(e["choices"][0]["text"] for e in events[:-1]) == stopped["text"], events)
    banned = {str(i): 100 if i == 70 else -100 for i in range(260)}
    biased = server.post("/v1/completions", body | {"logit_bias": banned, "max_tokens": 3, "logprobs": None})[1]
    case("a logit bias decides the tokens", biased["choices"][0]["text"] == text_of(server, [70]) * 3, biased)


def chats(server):
    body = {"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "max_tokens": 10, "temperature": 1, "seed": 11, "logprobs": True, "top_logprobs": 1, "ignore_eos": True}
    status, whole = server.post("/v1/chat/completions", body)
    choice = whole["choices"][0]
    case("a chat", status == 200 and whole["object"] == "chat.completion" and choice["message"]["role"] == "assistant"
         and whole["id"].startswith("chatcmpl-"), whole)
    content = choice["logprobs"]["content"]
    case("the bytes of its tokens are the text", bytes(sum((t["bytes"] for t in content), [])).decode(errors="replace")
         == choice["message"]["content"] and all(len(t["top_logprobs"]) == 1 for t in content), content)
    again = server.post("/v1/chat/completions", body)[1]
    case("the same seed gives the same text", again["choices"][0]["message"] == choice["message"])
    other = server.post("/v1/chat/completions", body | {"seed": 12})[1]
    case("another seed gives another text", other["choices"][0]["message"] != choice["message"])
    three = server.post("/v1/chat/completions", body | {"n": 3})[1]["choices"]
    case("sample s is drawn with seed + s", three[0]["message"] == choice["message"]
         and three[1]["message"] == other["choices"][0]["message"] and len(three) == 3, three)
    events = server.stream("/v1/chat/completions", body | {"stream": True}).events()
    deltas = [e["choices"][0]["delta"] for e in events[:-1]]
    case("a stream begins with the role", deltas[0] == {"role": "assistant", "content": ""}, deltas[:1])
    case("the stream has the same text", "".join(d.get("content", "") for d in deltas) == choice["message"]["content"], deltas)
    case("the stream gives its finish reason once", [e["choices"][0]["finish_reason"] for e in events[:-1]][-1] == "length"
         and "usage" not in events[0], events[-3:])
    prompt = server.post("/apply-template", {"messages": body["messages"]})[1]["prompt"]
    case("the template is applied", prompt == "<|start|>system\nbe<|end|><|start|>user\nhi<|end|><|start|>assistant\n", prompt)
    case("the chat's prompt is the template's output", whole["usage"]["prompt_tokens"] == len(ids(server, prompt)), whole["usage"])


def ids(server, text):
    return server.post("/tokenize", {"content": text})[1]["tokens"]


def text_of(server, tokens):
    return server.post("/detokenize", {"tokens": tokens})[1]["content"]


def plain_routes(server):
    tokens = ids(server, "the é<|end|>")
    case("tokenize and detokenize", text_of(server, tokens) == "the é<|end|>" and 257 in tokens, tokens)
    case("control tokens only on request", 257 not in server.post("/tokenize", {"content": "<|end|>",
                                                                               "parse_special": False})[1]["tokens"])
    body = {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True}
    whole = server.post("/generate", body)[1]
    case("generate", whole["finished"] and whole["finish_reason"] == "length" and len(whole["tokens"]) == 6, whole)
    events = server.stream("/generate/stream", body).events()
    case("generate/stream", "".join(e["text"] for e in events) == whole["text"]
         and sum((e["tokens"] for e in events), []) == whole["tokens"]
         and [e["finished"] for e in events] == [False] * 5 + [True], events)
    status = json.loads(server.get(f"/status/{whole['request_id']}")[2])
    case("status of a finished request", status == {"request_id": whole["request_id"], "status": "finished", "finished": True,
                                                "prompt_tokens": whole["usage"]["prompt_tokens"], "generated_tokens": 6,
                                                "finish_reason": "length"}, status)
    case("cancelling a finished request reports that it had ended", server.post(f"/cancel/{whole['request_id']}", None)[1]["cancelled"] is False)
    case("status of an unknown request", server.get("/status/nix")[0] == 404 and server.post("/cancel/nix", None)[0] == 404)


def embeddings(server):
    def vectors(target=server, **body):
        return [d["embedding"] for d in target.post("/v1/embeddings", body)[1]["data"]]
    texts = ["the cat", "a dog the", PROMPT * 9] + [chr(97 + i % 26) * (i + 1) for i in range(30)]
    status, answer = server.post("/v1/embeddings", {"model": "tiny", "input": texts})
    all_of_them = [d["embedding"] for d in answer["data"]]
    case("embeddings", status == 200 and answer["object"] == "list" and answer["model"] == "tiny"
         and [d["index"] for d in answer["data"]] == list(range(33))
         and {d["object"] for d in answer["data"]} == {"embedding"}, str(answer)[:300])
    case("embeddings' usage", answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == sum(
        len(ids(server, text)) for text in texts), answer["usage"])
    case("vectors have length 1", all(len(v) == 32 and abs(sum(x * x for x in v) - 1) < 1e-5 for v in all_of_them))
    case("a text alone gives the same vector", [vectors(input=text)[0] for text in texts[:5]] == all_of_them[:5])
    case("its ids give the same vector", vectors(input=[ids(server, text) for text in texts[:3]]) == all_of_them[:3]
         and vectors(input=ids(server, texts[0])) == all_of_them[:1])
    coded = vectors(input=texts[:2], encoding_format="base64")
    case("base64 has the same numbers", [list(struct.unpack("<32f", base64.b64decode(c))) for c in coded] == [
        list(struct.unpack("<32f", struct.pack("<32f", *v))) for v in all_of_them[:2]], coded)
    cut = vectors(input=texts[0], dimensions=5)[0]
    case("fewer dimensions are the first ones, normalised again", len(cut) == 5 and abs(sum(x * x for x in cut) - 1) < 1e-5
         and all(abs(a / cut[0] - b / all_of_them[0][0]) < 1e-4 for a, b in zip(cut, all_of_them[0])), cut)
    for name, body, code in (("no input", {}, "invalid_value"), ("an empty one", {"input": ["a", ""]}, "invalid_value"),
                             ("too many dimensions", {"input": "a", "dimensions": 33}, "invalid_value"),
                             ("another encoding", {"input": "a", "encoding_format": "x"}, "invalid_value"),
                             ("a long one", {"input": ["a", "x" * 600]}, "context_length_exceeded"),
                             ("an unknown member", {"input": "a", "nix": 1}, "unknown_member"),
                             ("an id that is none", {"input": [[99999]]}, "invalid_value")):
        status, answer = server.post("/v1/embeddings", body)
        case(f"embeddings of {name}", status == 400 and answer["error"]["code"] == code, answer)
    stream = server.stream("/generate/stream", {"prompt": "the", "max_tokens": 400, "ignore_eos": True})
    stream.first()
    case("embeddings are the same beside a stream", vectors(input=texts[:5]) == all_of_them[:5])
    case("the stream goes on", stream.events()[-1]["finish_reason"] == "length")
    server.idle()
    mean = Server(model, "--pooling", "mean")
    case("another pooling gives other vectors", vectors(mean, input=texts[0]) != all_of_them[:1]
         and vectors(mean, input="a") == vectors(input="a"))
    case("mean pooling is batch-invariant", vectors(mean, input=texts)[:5] == [vectors(mean, input=t)[0] for t in texts[:5]])
    case("mean: it ends well", mean.stop() == 0)
    metadata, tensors = tiny_parts(context=512)
    ranked = Server(write("ranked.gguf", gguf(metadata | {"llama.pooling_type": 4}, tensors)))
    status, answer = ranked.post("/v1/embeddings", {"input": "a"})
    case("an unsupported pooling is refused", status == 400 and answer["error"]["code"] == "not_supported", answer)
    case("ranked: it ends well", ranked.stop() == 0)
    plan = at("plain.plan")
    subprocess.run([f"{BIN}/forge-compile", model, "--target", "cpu", "--max-batch", "16", "-o", plan], check=True,
                   capture_output=True, env=environment())
    plain = Server(plan)
    status, answer = plain.post("/v1/embeddings", {"input": "a"})
    case("a plan without embeddings refuses them", status == 400 and answer["error"]["code"] == "not_supported", answer)
    case("plain: it ends well", plain.stop() == 0)


def company(server):
    """Each request alone, then all at once: the texts are equal, greedy and sampled."""
    bodies = [{"prompt": PROMPT * (1 + i % 7) + chr(97 + i % 26), "max_tokens": 20 + i % 9, "seed": i,
               "temperature": 0 if i % 2 else 1, "top_p": 0.95, "ignore_eos": True} for i in range(32)]
    alone = [server.post("/v1/completions", body)[1]["choices"] for body in bodies]
    together = [None] * len(bodies)

    def ask(i):
        together[i] = server.post("/v1/completions", bodies[i])[1]["choices"]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case("32 texts in a batch equal those alone", together == alone,
         [i for i in range(32) if together[i] != alone[i]])


def metrics_move(server):
    before = server.idle()
    server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 5, "ignore_eos": True})
    after = server.idle()
    for name, by in {"forge_generation_tokens_total": 5, "forge_time_to_first_token_seconds_count": 1,
                     "forge_inter_token_latency_seconds_count": 4, "forge_e2e_request_latency_seconds_count": 1,
                     "forge_request_queue_time_seconds_count": 1, "forge_request_prefill_time_seconds_count": 1,
                     "forge_request_decode_time_seconds_count": 1,
                     'forge_request_success_total{finished_reason="length"}': 1}.items():
        case(f"metric {name} increases", after[name] == before[name] + by, (before[name], after[name]))
    for name in ("forge_prompt_tokens_total", "forge_prefix_cache_queries_total", "forge_prefix_cache_hits_total",
                 'forge_http_responses_total{status="200"}'):
        case(f"metric {name} increases", after[name] > before[name] or name.endswith("hits_total"), (before[name], after[name]))
    case("the gauges exist", {"forge_num_requests_running", "forge_num_requests_waiting", "forge_kv_cache_usage_perc",
                              "forge_request_retries_total", "forge_num_preemptions_total"} <= after.keys())


def file_defaults():
    """The model file's settings apply where a request sets nothing; an invalid setting is reported in the log."""
    metadata, tensors = tiny_parts()
    own = {"temp": 1.5, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "penalty_repeat": 1.5}
    metadata.update({f"general.sampling.{key}": value for key, value in {**own, "penalty_last_n": -3}.items()})
    server = Server(write("own.gguf", gguf(metadata, tensors)))
    asked = {"temperature": 1.5, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "repetition_penalty": 1.5}
    neutral = {"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
    for path, text in (("/v1/completions", {"prompt": PROMPT}), ("/generate", {"prompt": PROMPT}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]})):
        body = {**text, "max_tokens": 60, "seed": 5, "ignore_eos": True}

        def answer(**members):
            answered = server.post(path, {**body, **members})[1]
            return answered.get("text") or answered["choices"][0]
        case(f"{path}: the file's settings apply", answer() == answer(**asked) != answer(**neutral), answer())
        case(f"{path}: a request's member overrides them", answer(**neutral) == answer(**neutral, seed=6))
    case("the log names the ignored setting", "general.sampling.penalty_last_n is i32 -3" in server.line("ignored="), server.lines)
    case("it ends well", server.stop() == 0, server.lines[-3:])


running = Server(model, "--parallel", 32)
for part in (states_and_models, completions, chats, plain_routes, embeddings, company, metrics_move):
    part(running)
case("it ends well", running.stop() == 0, running.lines[-3:])
file_defaults()
finish()
