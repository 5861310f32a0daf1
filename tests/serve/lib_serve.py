"""Shared code of the server tests: a running forge-serve on a free port, requests, server-sent events.

Every wait is for an answer, a log line or a state, never for a fixed time; GUARD only ends a test that hangs.
"""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "cli"))
from lib_cli import BIN, FOLDER, GUARD, SANITIZED, at, case, environment, finish, skip, tiny, write  # noqa: E402,F401

JSON = {"Content-Type": "application/json"}


def until(condition, what):
    """Polls until `condition` gives a true value; returns that value."""
    end = time.monotonic() + GUARD
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"never: {what}")
        time.sleep(0.005)
    return result


class Server:
    """forge-serve with --port 0; ready after construction unless `wait` is false."""

    def __init__(self, model, *args, wait=True, env=None):
        self.lines = []
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            [os.path.join(BIN, "forge-serve"), model, "--port", "0", "--device", "cpu", "--threads", "2", *map(str, args)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=environment(**(env or {})), cwd=FOLDER)
        threading.Thread(target=self._read, daemon=True).start()
        line = self.line("listening")
        self.port = int(line.rstrip().rsplit(":", 1)[1].rstrip('"}'))
        if wait:
            self.line("ready")

    def _read(self):
        for raw in self.process.stderr:
            with self.news:
                self.lines.append(raw.decode())
                self.news.notify_all()
        with self.news:
            self.lines.append("")
            self.news.notify_all()

    def line(self, text):
        """Waits for the first log line that contains `text`, and returns it."""
        with self.news:
            found = lambda: next((line for line in self.lines if text in line or not line), None)
            self.news.wait_for(lambda: found() is not None, GUARD)
            if not found():
                raise EOFError(f"{text!r} never came: {self.lines}")
            return found()

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD)
        connection.connect()
        return connection

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=GUARD)

    def raw(self, data):
        """Sends bytes and returns everything received until the server closes."""
        with self.socket() as s:
            s.sendall(data)
            return read_all(s)

    def request(self, method, path, body=None, headers=None):
        """Returns status, headers and text."""
        connection = self.connect()
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body, headers if headers is not None else JSON if body is not None else {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, headers=None):
        """Returns status and JSON."""
        status, _, text = self.request("POST", path, body, headers)
        return status, json.loads(text)

    def stream(self, path, body):
        return Stream(self, path, body)

    def metrics(self):
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in self.get("/metrics")[2].splitlines() if not line.startswith("#")}

    def idle(self):
        """Waits until the engine has nothing left of any request; returns the metrics then."""
        def nothing_left():
            m = self.metrics()
            same = m["forge_kv_cache_blocks"] == m["forge_kv_cache_blocks_free"]
            return m if m["forge_requests_open"] == 0 and m["forge_num_requests_running"] == 0 and same else None
        return until(nothing_left, "the engine gives everything back")

    def count(self, what):
        """Number of entries of /proc/PID/WHAT, for WHAT = fd or task."""
        return len(os.listdir(f"/proc/{self.process.pid}/{what}"))

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def stop(self):
        """Sends SIGTERM; returns the exit status."""
        self.signal()
        return self.process.wait(GUARD)


def read_all(s):
    data = b""
    try:
        while more := s.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


class Stream:
    """A streamed request: an iterator over its events."""

    def __init__(self, server, path, body):
        self.connection = server.connect()
        self.connection.request("POST", path, json.dumps(body), JSON)
        self.answer = self.connection.getresponse()
        if self.answer.status != 200:
            raise ValueError(self.answer.read())

    def __iter__(self):
        """Yields each event's data, or "ping" for a comment."""
        for line in self.answer:
            line = line.decode().rstrip("\n")
            if line.startswith(":"):
                yield "ping"
            elif line:
                yield line.removeprefix("data: ")

    def events(self):
        """All events, parsed as JSON except [DONE]; closes the connection."""
        try:
            return [data if data in ("[DONE]", "ping") else json.loads(data) for data in self]
        finally:
            self.close()

    def first(self):
        """The next event."""
        return next(iter(self))

    def answers(self):
        """The events without pings, which may come between any two on a busy machine."""
        return (event for event in self if event != "ping")

    def close(self):
        self.answer.close()
        self.connection.close()
