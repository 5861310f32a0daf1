#!/usr/bin/env python3
"""forge-serve survives invalid bodies, malformed HTTP, wrong keys, slow and vanished clients, and overload.

usage: FORGE_BIN=DIR hostile.py
"""
import json
import socket
import struct

from lib_serve import JSON, SANITIZED, Server, at, case, finish, read_all, skip, tiny, until, write

model = tiny(context=512)
long_model = tiny("long.gguf", context=65536, layers=8)
LONG = {"prompt": "the", "max_tokens": 60000, "ignore_eos": True}  # longer than any test waits
CHAT = "/v1/chat/completions"


def refused(server, name, path, body, status, code, headers=None):
    """Checks a refusal: OpenAI's error shape, a category, and whether a retry may help."""
    got, _, text = server.request("POST", path, body, headers)
    try:
        error = json.loads(text)["error"]
        shape = set(error) == {"message", "type", "param", "code", "category", "recoverable"} and error["message"]
    except (ValueError, KeyError, TypeError):
        error, shape = {"code": None}, False
    return case(name, got == status and error["code"] == code and shape, (got, text))


def bodies(server):
    for name, body in {"nothing": b"", "no JSON": b"{", "a list": b"[]", "invalid UTF-8": b'{"prompt":"\xff"}',
                       "lone surrogate": b'{"prompt":"\\ud800"}', "NUL": b'{"prompt":"a"}\0',
                       "deep": b'{"prompt":' + b"[" * 100000}.items():
        refused(server, name, "/v1/completions", body, 400, "invalid_json", JSON)
    refused(server, "an unknown member", "/v1/completions", {"prompt": "a", "nix": 1}, 400, "unknown_member")
    refused(server, "a wrong type", "/v1/completions", {"prompt": "a", "n": "2"}, 400, "invalid_value")
    refused(server, "an impossible value", CHAT, {"messages": [{"role": "user", "content": "a"}], "top_p": 7}, 400,
            "invalid_value")
    refused(server, "no messages", CHAT, {"messages": []}, 400, "invalid_value")
    refused(server, "an empty prompt", "/v1/completions", {"prompt": ""}, 400, "invalid_value")
    refused(server, "ids outside the vocabulary", "/v1/completions", {"prompt": [99999]}, 400, "invalid_value")
    refused(server, "ids outside it to detokenize", "/detokenize", {"tokens": [99999]}, 400, "invalid_value")
    refused(server, "a bias outside it", "/v1/completions", {"prompt": "a", "logit_bias": {"99999": 1}}, 400, "invalid_value")
    more = server.post("/v1/completions", {"prompt": "a", "n": 20, "max_tokens": 2})[1]
    case("more samples than sequences wait", len(more.get("choices", [])) == 20, more)
    refused(server, "no JSON by its type", "/v1/completions", b'{"prompt":"a"}', 415, "unsupported_media_type",
            {"Content-Type": "text/plain"})
    long = {"prompt": "x" * 600}
    refused(server, "a prompt longer than the context", "/v1/completions", long, 400, "context_length_exceeded")
    error = server.post("/v1/completions", long | {"max_tokens": 7})[1]["error"]
    case("the message has the sizes", all(number in error["message"] for number in ("600", "7", "512")), error)
    spoken = server.post(CHAT, {"messages": [{"role": "user", "content": "x" * 600}]})[1]["error"]
    case("the error names the member", (error["param"], spoken["param"]) == ("prompt", "messages"), (error, spoken))
    refused(server, "everything forbidden", "/v1/completions",
            {"prompt": "a", "temperature": 0, "stop_token_ids": [1, 2, 3], "timeout": -1}, 400, "invalid_value")
    case("the server still answers", server.post("/v1/completions", {"prompt": "a"})[0] == 200)


def paths(server):
    for path in ("/", "/v1", "/v1/", "/v1/completions/", "//v1/completions", "/v1/../v1/models", "/%76%31/models",
                 "/v1/models/../../etc/passwd", "/status/", "/status/a/b", "/etc/passwd", "/health%00", "/HEALTH",
                 "/" + "a" * 5000):
        status, _, text = server.get(path)
        case(f"{path[:40]} is not found", status == 404 and json.loads(text)["error"]["code"] in
             ("unknown_route", "model_not_found"), (status, text))
    case("a query string is ignored", server.get("/health?x=../y")[0] == 200)
    status, headers, text = server.get("/v1/completions")
    case("a wrong method", status == 405 and headers["Allow"] == "POST", (status, text))
    case("an unknown method", server.request("BREW", "/health")[0] in (400, 405))


def wire(server):
    for name, data, status in (
            ("garbage", b"\x16\x03\x01\x02\0\x01\0\0\r\n\r\n", 400),
            ("no version", b"GET /health\r\n\r\n", 400),
            ("a bad header", b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
            ("a negative length", b"POST /generate HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
            ("two lengths", b"POST /generate HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
            ("length and chunks", b"POST /generate HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("a bad chunk", b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
            ("a large head", b"GET /health HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n", 431),
            ("a large body", b"POST /generate HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", 413),
            ("a large body in chunks", b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
             + b"10000\r\n" + b" " * 65536 + b"\r\n" + b"10000\r\n" + b" " * 65536 + b"\r\n0\r\n\r\n", 413),
            ("a chunk's line without an end", b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1;a="
             + b"a" * (1 << 20), 413),
            ("trailers without an end", b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
             + b"A: b\r\n" * (1 << 18), 413)):
        answer = server.raw(data)
        case(name, answer.startswith(b"HTTP/1.1 %d " % status) and b'"error"' in answer, answer[:200])
    case("an empty connection gets no answer", server.raw_half(b"") == b"")
    body = b'{"prompt":"a","max_tokens":2}'
    head = b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    two = server.raw(head + b"\r\n" + body + head + b"Connection: close\r\n\r\n" + body)
    case("two pipelined requests get two answers", two.count(b"HTTP/1.1 200 OK") == 2, two)
    old = server.raw(head.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n" + body)
    case("HTTP/1.0 is answered and closed", old.startswith(b"HTTP/1.1 200") and b"Connection: close" in old, old)
    old = server.raw((head + b"\r\n" + body).replace(b"/generate HTTP/1.1", b"/generate/stream HTTP/1.0"))
    case("a stream for HTTP/1.0 has no chunks", b"chunked" not in old and old.count(b"data: ") == 2
         and old.endswith(b"\n\n"), old)
    asked = server.raw(head + b"Expect: 100-continue\r\nConnection: close\r\n\r\n" + body)
    case("100-continue", asked.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), asked[:80])


def raw_half(self, data):
    with self.socket() as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        return read_all(s)


Server.raw_half = raw_half


def slow():
    server = Server(model, "--idle-timeout", 0.2, "--body-timeout", 0.2)
    answer = server.raw(b"GET /hea")
    case("a request head that never ends", answer.startswith(b"HTTP/1.1 408"), answer)
    case("a silent connection is closed", server.raw(b"") == b"")
    answer = server.raw(b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
    case("a request body that never ends", answer.startswith(b"HTTP/1.1 408"), answer)
    case("slow clients: it ends well", server.stop() == 0)


def vanishing():
    server = Server(long_model, "-c", 65536, "--parallel", 2, "--write-timeout", 0.5, "--ping", 0.02)
    fds = server.count("fd")
    stream = server.stream("/generate/stream", LONG)
    stream.first()
    stream.close()
    metrics = server.idle()
    case("a stream whose reader has gone is cancelled",
         metrics['forge_request_success_total{finished_reason="cancelled"}'] == 1, metrics)
    connection = server.connect()
    connection.request("POST", "/generate", json.dumps(LONG), JSON)
    until(lambda: server.metrics()["forge_num_requests_running"] == 1, "it runs")
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()  # sends a reset
    case("a request for a whole answer is cancelled when the client resets", server.idle())
    with server.socket() as s:
        body = json.dumps(LONG).encode()
        s.sendall(b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.metrics()["forge_num_requests_running"] == 1, "it runs")
        s.shutdown(socket.SHUT_WR)
        case("a request is cancelled when the client closes its half", server.idle())
    with server.socket() as s:  # the excess bytes are not read while the client waits
        s.sendall(b"POST /generate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: server.metrics()["forge_num_requests_running"] == 1, "it runs")
        s.sendall(b"\r\n")
    case("a request is cancelled when the client sends more and disconnects", server.idle())
    stuck = server.socket()  # reads nothing: its buffers fill, then the write times out
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bodies = json.dumps(LONG | {"logprobs": 20, "stream": True}).encode()
    stuck.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                  % len(bodies) + bodies)
    until(lambda: server.metrics()["forge_num_requests_running"] == 1, "it runs")
    case("a request is cancelled when the client reads nothing", server.idle())
    stuck.close()
    case("no descriptor is left open", until(lambda: server.count("fd") == fds, "descriptors are closed"))
    case("vanishing: it ends well", server.stop() == 0)


def flood():
    server = Server(long_model, "-c", 65536, "--parallel", 1, "--queue", 1, "--ping", 0.02, "--request-timeout", 1000,
                    "--write-timeout", 1000)  # the first stream is not read for a while
    first = server.stream("/generate/stream", LONG)
    request_id = json.loads(next(first.answers()))["request_id"]
    second = server.stream("/generate/stream", LONG)
    case("pings keep a queued request alive", second.first() == "ping")
    status, headers, text = server.request("POST", "/generate", {"prompt": "a"})
    error = json.loads(text)["error"]
    case("beyond the queue limit: 429", status == 429 and int(headers["Retry-After"]) >= 1 and error["recoverable"]
         and error["category"] == "load" and error["code"] == "queue_full", (status, text))
    case("status of a running request", json.loads(server.get(f"/status/{request_id}")[2])["status"] == "running")
    case("a request is cancelled by its id", server.post(f"/cancel/{request_id}", None)[1]["cancelled"])
    last = [json.loads(e) for e in first.answers()][-1]
    case("the cancelled stream says so", last["finished"] and last["finish_reason"] == "cancelled", last)
    case("then the next request runs", json.loads(next(second.answers()))["text"] is not None)
    second.close()
    server.idle()
    status, answer = server.post("/generate", LONG | {"timeout": 0.05})
    case("a deadline", status == 504 and answer["error"]["code"] == "deadline" and answer["error"]["recoverable"], answer)
    events = server.stream("/v1/completions", LONG | {"timeout": 0.05, "stream": True}).events()
    case("a deadline in a stream", events[-1] == "[DONE]" and events[-2]["error"]["code"] == "deadline", events[-2:])
    server.idle()
    case("flood: it ends well", server.stop() == 0)


def copies():
    """A small body that asks for many samples costs about what each sample needs, not the body size times their number."""
    server = Server(model, "--parallel", 16)
    body = {"prompt": ["a"] * 128, "n": 16, "max_tokens": 1, "stop": [chr(97 + i) * 1024 for i in range(16)]}
    peak = lambda: int(next(line for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmHWM")).split()[1])
    case("one sample", server.post("/v1/completions", body | {"prompt": "a", "n": 1})[0] == 200)
    before = peak()
    status, answer = server.post("/v1/completions", body)
    case("2048 samples with 16 KiB of stop strings", status == 200 and len(answer["choices"]) == 2048, answer)
    grown = (peak() - before) >> 10
    if SANITIZED:
        skip("they take less than 64 MiB", "a sanitizer keeps what is freed")
    else:
        case("they take less than 64 MiB", grown < 64, grown)
    case("copies: it ends well", server.stop() == 0)


def keys_and_origins():
    keys = write("keys", b"# ours\nsecret\n\nother \n")
    server = Server(model, "--api-key-file", keys, "--cors-origin", "http://good", "--max-body-kib", 1)
    for name, headers, status in (("no key", {}, 401), ("a wrong key", {"Authorization": "Bearer secreT"}, 401),
                                  ("a part of a key", {"Authorization": "Bearer secre"}, 401),
                                  ("another scheme", {"Authorization": "Basic secret"}, 401),
                                  ("a key", {"Authorization": "Bearer secret"}, 200),
                                  ("the other key", {"Authorization": "Bearer other"}, 200)):
        case(name, server.request("POST", "/generate", {"prompt": "a"}, JSON | headers)[0] == status)
        case(f"{name}: metrics", server.request("GET", "/metrics", headers=headers)[0] == status)
    case("health needs no key", server.get("/health")[0] == 200 and server.get("/ready")[0] == 200)
    good = server.request("GET", "/health", headers={"Origin": "http://good"})[1]
    case("a page of an allowed origin may read", good["Access-Control-Allow-Origin"] == "http://good", good)
    case("other origins may not", server.request("GET", "/health", headers={"Origin": "http://bad"})[1]
         ["Access-Control-Allow-Origin"] is None)
    before = server.request("OPTIONS", "/generate", headers={"Origin": "http://good", "Access-Control-Request-Method": "POST",
                                                             "Access-Control-Request-Headers": "authorization"})
    case("a preflight request needs no key", before[0] == 204 and before[1]["Access-Control-Allow-Headers"] == "authorization", before)
    head = b"POST %s HTTP/1.1\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    for name, path, framing, status in (
            ("without a key no body is asked for", b"/generate", b"Content-Length: 1000", b"401"),
            ("a body that is too long is refused by its length", b"/generate", b"Content-Length: 100000000", b"413"),
            ("nor one in chunks", b"/generate", b"Transfer-Encoding: chunked", b"401"),
            ("nor by a path that is nowhere", b"/nowhere", b"Content-Length: 1000", b"404")):
        answer = server.raw(head % path + framing + b"\r\n\r\n")
        case(name, answer.startswith(b"HTTP/1.1 " + status) and b"Connection: close" in answer, answer)
    refused(server, "the body's limit", "/generate", {"prompt": "a" * 2000}, 413, "body_too_large",
            JSON | {"Authorization": "Bearer secret"})
    case("keys: it ends well", server.stop() == 0)


server = Server(model, "--parallel", 4, "--max-body-kib", 120)
for part in (bodies, paths, wire):
    part(server)
server.idle()
case("it ends well", server.stop() == 0)
for part in (slow, vanishing, flood, copies, keys_and_origins):
    part()
finish()
