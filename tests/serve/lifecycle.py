#!/usr/bin/env python3
"""forge-serve from start to shutdown: options, loading, logs, draining, and no leaks after many mixed requests.

usage: FORGE_BIN=DIR lifecycle.py [REQUESTS]

With REQUESTS it runs only those requests, measures the cost of idle connections and, if $FORGE_HEAP_COUNTER names the built
heap_count.cc, counts the live heap. The same number of requests runs first as a warm-up, after which the heap has the size
that such a load needs: pages are touched for the first time, ever more rarely, whenever more requests coincide than before.
Then memory is recorded after each tenth, and the slope over the last 80 % is printed and bounded.
"""
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from lib_serve import BIN, GUARD, JSON, SANITIZED, Server, at, case, environment, finish, skip, tiny, until, write

model = tiny(context=512)
long_model = tiny("long.gguf", context=65536, layers=8)
LONG = {"prompt": "the", "max_tokens": 60000, "ignore_eos": True}


def run(*args, **env):
    return subprocess.run([f"{BIN}/forge-serve", *map(str, args)], capture_output=True, timeout=GUARD, env=environment(**env))


def options():
    file = write("serve.toml", b'# ours\nport = 7\nqueue = 5\nalias = "from file"\nno-prefix-cache = true\n'
                 b'cors-origin = ["http://a", "http://b"]\n')
    shown = run(model, "--print-config", "--config", file, "--parallel", 3, FORGE_QUEUE="6", FORGE_PARALLEL="2").stdout.decode()
    for name, line in {"the file": "port = 7", "the environment before the file": "queue = 6",
                       "the command line before both": "parallel = 3", "text": 'alias = "from file"',
                       "a flag": "no-prefix-cache = true", "a list": 'cors-origin = "http://a http://b"',
                       "a default": 'host = "127.0.0.1"'}.items():
        case(f"options from {name}", f"\n{line}\n" in shown, shown)
    case("--help names the environment variable of every option", "(FORGE_DRAIN_TIMEOUT)" in shown, shown)
    case("the config file's name may come from the environment", "queue = 5" in run(model, "--print-config", FORGE_CONFIG=file).stdout.decode())
    for name, args, env, status in (
            ("an unknown key", ("--config", write("bad1.toml", b"nix = 1\n")), {}, 2),
            ("a section", ("--config", write("bad2.toml", b"[a]\nport = 1\n")), {}, 2),
            ("a bad value in the file", ("--config", write("bad3.toml", b"port = 70000\n")), {}, 2),
            ("a bad value in the environment", (), {"FORGE_PORT": "x"}, 2),
            ("two values", ("--config", write("bad4.toml", b"port = [1, 2]\n")), {}, 2),
            ("no such file", ("--config", at("nix")), {}, 1),
            ("a host that is none", ("--host", "nix nix"), {}, 2),
            ("a level that is none", ("--log-level", "loud"), {}, 2),
            ("no keys", ("--api-key-file", write("empty", b"# none\n")), {}, 2),
            ("an address of another machine", ("--host", "192.0.2.1"), {}, 1)):
        bad = run(model, *args, **env)
        case(name, bad.returncode == status and bad.stderr.count(b"\n") == 1 and bad.stderr.startswith(b"error["), bad)
    case("a missing model argument is an error for any environment", run(FORGE_MODEL=model).returncode == 2)
    bad = run(at("nix.gguf"), "--port", 0)
    case("a model file that does not exist", bad.returncode == 1 and b"error[io]" in bad.stderr, bad)
    taken = socket.create_server(("127.0.0.1", 0))
    bad = run(model, "--port", taken.getsockname()[1])
    case("a port in use", bad.returncode == 1 and b"cannot listen" in bad.stderr, bad)
    taken.close()


def logs():
    server = Server(model, "--log-format", "json")
    status, headers, _ = server.request("POST", "/generate", {"prompt": "a", "max_tokens": 2})
    line = json.loads(server.line('"event":"request"'))
    case("a log line is JSON with the request's id", line["id"] == headers["X-Request-Id"] and line["path"] == "/generate"
         and line["status"] == 200 and line["method"] == "POST", line)
    server.get('/x"\\')
    case("hostile paths stay within their log line", json.loads(server.line("x\\\""))["status"] == 404)
    case("Ctrl-C drains too", (server.signal(signal.SIGINT), server.process.wait(GUARD))[1] == 0)


def draining():
    server = Server(long_model, "-c", 65536, "--parallel", 2, "--drain-timeout", 1000)
    idle = server.connect()
    stream = server.stream("/generate/stream", LONG | {"max_tokens": 3000})
    stream.first()
    server.signal()
    server.line("draining")
    case("draining closes idle connections", idle.sock.recv(1) == b"")

    def closed():
        try:
            server.socket().close()
        except ConnectionRefusedError:
            return True
        return False
    case("draining refuses new connections", until(closed, "the port is closed"))
    events = stream.events()
    case("draining finishes running requests", events[-1]["finish_reason"] == "length", events[-1:])
    case("exit 0 after SIGTERM", server.process.wait(GUARD) == 0, server.lines[-3:])
    server = Server(long_model, "-c", 65536, "--drain-timeout", 1000)
    stream = server.stream("/generate/stream", LONG)
    stream.first()
    server.signal()
    server.line("draining")
    server.signal()
    case("a second SIGTERM forces the exit", server.process.wait(GUARD) == 128 + signal.SIGTERM, server.lines[-3:])
    stream.close()
    server = Server(long_model, "-c", 65536, "--drain-timeout", 0)
    stream = server.stream("/generate/stream", LONG)
    stream.first()
    server.signal()
    case("requests that exceed the drain timeout are cancelled", server.process.wait(GUARD) == 0, server.lines[-3:])
    stream.close()


def one_request(server, dice):
    """A random request: a third of them cancelled, a tenth dropped. Returns None or what was wrong."""
    body = {"prompt": "the cat " * dice.randrange(1, 20), "max_tokens": dice.randrange(1, 60), "seed": dice.randrange(9),
            "temperature": dice.choice([0, 1]), "n": dice.choice([1, 1, 2]), "ignore_eos": True}
    kind = dice.random()
    if kind < 0.1:  # dropped connection
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps(body | {"max_tokens": 400}), JSON)
        return connection.close()
    if kind < 0.25:  # left in the middle of a stream
        stream = server.stream("/v1/completions", body | {"stream": True, "max_tokens": 100})
        for _ in range(dice.randrange(1, 10)):
            stream.first()
        return stream.close()
    if kind < 0.43:  # cancelled by id
        stream = server.stream("/generate/stream", body | {"n": 1, "max_tokens": 200})
        name = json.loads(stream.first())["request_id"]
        server.post(f"/cancel/{name}", None)
        last = stream.events()[-1]
        return None if last["finished"] and last["finish_reason"] in ("cancelled", "length") else last
    if kind < 0.5:  # refused
        status = server.post("/v1/completions", body | {"top_p": 2})[0]
        return None if status == 400 else status
    if kind < 0.75:
        events = server.stream("/v1/completions", body | {"stream": True}).events()
        return None if events[-1] == "[DONE]" else events
    status, answer = server.post("/v1/completions", body)
    tokens = answer.get("usage", {}).get("completion_tokens")
    return None if status == 200 and tokens == body["max_tokens"] * body["n"] else answer


def resident_kib(server):
    with open(f"/proc/{server.process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def together(server, numbers, wrong):
    """Runs these requests, eight at once, until nothing of them is left; appends what was wrong to `wrong`."""
    def work(mine):
        for number in mine:
            try:
                if (bad := one_request(server, random.Random(number))) is not None:
                    wrong.append((number, bad))
            except Exception as error:  # noqa: BLE001: any exception is a finding
                wrong.append((number, repr(error)))
    threads = [threading.Thread(target=work, args=(numbers[k::8],)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.idle()


def remember_all(server):
    """Fills the list of the last 1,024 ended requests before memory is measured."""
    for _ in range(1100):
        server.post("/generate", {"prompt": "the", "max_tokens": 1})


def slope_of(values):
    """Slope of the least-squares line through the values."""
    mean_x, mean_y = (len(values) - 1) / 2, sum(values) / len(values)
    return sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values)) / sum((x - mean_x) ** 2 for x in range(len(values)))


def mixed(count):
    server = Server(model, "--parallel", 6, "--queue", 1000)
    begun = {what: server.count(what) for what in ("fd", "task")}  # before any connection
    wrong, resident, tenths = [], [], 10 if count > 200 else 1
    if tenths > 1:
        remember_all(server)
        together(server, range(count, 2 * count), wrong)
    for tenth in range(tenths):
        together(server, range(tenth * count // tenths, (tenth + 1) * count // tenths), wrong)
        resident.append(resident_kib(server))
    case(f"{count} mixed requests", not wrong, wrong[:3])
    metrics = server.idle()
    case("no KV block and no sequence is left", metrics["forge_num_requests_waiting"] == 0)
    for what, before in begun.items():
        case(f"as many entries of /proc/PID/{what} as before", until(lambda: server.count(what) == before, what))
    if tenths > 1 and not SANITIZED:
        slope = slope_of(resident[2:]) * 1000 / count
        print(f"resident KiB after each tenth of {count}: {resident}; slope {slope:.1f} KiB for 100 requests")
        case("resident memory does not grow", abs(slope) < 0.002 * resident[2], resident)
    case("mixed: it ends well", server.stop() == 0)


def heap(count):
    """The live heap between requests does not grow with their number (counted by heap_count.cc)."""
    file, live, wrong = at("heap"), [], []
    server = Server(model, "--parallel", 6, "--queue", 1000,
                    env={"LD_PRELOAD": os.environ["FORGE_HEAP_COUNTER"], "FORGE_HEAP_COUNT": file})
    begun = server.count("fd")
    remember_all(server)
    for tenth in range(10):
        together(server, range(tenth * count // 10, (tenth + 1) * count // 10), wrong)
        until(lambda: server.count("fd") == begun, "all connections are closed")
        with open(file, "rb") as counts:
            live.append(struct.unpack("2q", counts.read(16)))
    held = [size for size, _ in live[2:]]
    print(f"live bytes and blocks of the heap after each tenth of {count}: {live}; slope "
          f"{slope_of(held) * 1000 / count:.0f} bytes for 100 requests")
    case("heap: all requests succeed", not wrong, wrong[:3])
    case("the live heap does not grow", max(held) - min(held) < 16384 and abs(slope_of(held)) < 1024, live)
    case("heap: it ends well", server.stop() == 0)


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_connections(count=500, seconds=10):
    """The cost of connections that were used once and stay open: memory, and CPU time compared with a server without any."""
    server = Server(model)
    begun = server.count("fd")  # before any connection
    server.get("/health")
    before = resident_kib(server)

    def share():
        cpu = cpu_seconds(server)
        time.sleep(seconds)
        return (cpu_seconds(server) - cpu) / seconds
    alone, kept = share(), []
    for _ in range(count):
        kept.append(server.connect())
        kept[-1].request("GET", "/health")
        case("a kept connection", kept[-1].getresponse().read() and kept[-1].sock)
    grown, with_them = resident_kib(server) - before, share()
    print(f"{count} idle connections: {grown} KiB; {100 * with_them:.2f} % of a core for {seconds} s, {100 * alone:.2f} % without them")
    if SANITIZED:
        skip("they cost less than 20 MB", "a sanitizer keeps what is freed")
    else:
        case("idle connections take less than 20 MB", grown < 20e6 / 1024, grown)
    case("idle connections take no CPU time", with_them < 0.01 and alone < 0.01, (with_them, alone))
    case("all connections still work", all(c.request("GET", "/health") or c.getresponse().status == 200 for c in kept))
    for connection in kept:
        connection.close()
    case("as many file descriptors as before", until(lambda: server.count("fd") == begun, "all closed"))
    case("idle: it ends well", server.stop() == 0)


if len(sys.argv) > 1:
    idle_connections()
    mixed(int(sys.argv[1]))
    if "FORGE_HEAP_COUNTER" in os.environ:
        heap(int(sys.argv[1]))
else:
    options()
    logs()
    draining()
    mixed(200)
finish()
