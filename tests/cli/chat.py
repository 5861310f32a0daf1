#!/usr/bin/env python3
"""forge-run as an interactive chat on a pseudo-terminal: stdin and stderr are the terminal, stdout is a pipe.

Every wait is for text or for the end of the process, never for a fixed time; GUARD only ends a test that hangs.
usage: FORGE_BIN=DIR chat.py
"""
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import termios
import time

from lib_cli import BIN, FOLDER, GUARD, at, case, environment, finish, gguf, skip, tiny, tiny_parts, tool, write

PROMPT = b"> "
GREEDY = ("--temp", 0)  # deterministic text
model = tiny()


def read_now(fd):
    """The bytes available now: b"" at the end, None if nothing is available yet."""
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return None
    except OSError:  # EIO: the other end of the terminal is closed
        return b""


class Chat:
    """A running chat. The terminal is its controlling one, so typing Ctrl-C sends a signal."""

    def __init__(self, *args, term=None):
        self.master, slave = os.openpty()
        env = environment(HOME=FOLDER, XDG_STATE_HOME=at("state"))
        env.pop("TERM", None)
        env.update({} if term is None else {"TERM": term})

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([os.path.join(BIN, "forge-run"), *map(str, args)], stdin=slave, stderr=slave,
                                        stdout=subprocess.PIPE, env=env, cwd=FOLDER, preexec_fn=own_terminal)
        os.close(slave)
        os.set_blocking(self.master, False)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.screen = self.answers = b""
        self.seen = 0
        self.ended = time.monotonic() + GUARD

    def pump(self):
        """Reads what is available from the terminal and from standard output; False when both have ended.

        The terminal is read first, and standard output even if select did not report it: whatever was written to stdout
        before some text of the terminal is then never missing once that text has been read.
        """
        descriptors = (self.master, self.process.stdout.fileno())
        if not select.select(descriptors, [], [], max(0, self.ended - time.monotonic()))[0]:
            self.process.kill()
            raise TimeoutError(f"no end in {GUARD} s: {self.screen!r} {self.answers!r}")
        screen, answers = map(read_now, descriptors)
        self.screen += screen or b""
        self.answers += answers or b""
        return screen != b"" or answers != b""

    def wait(self, text=PROMPT):
        """Waits until `text` appears on the terminal after the last match; returns what came up to its end."""
        while (found := self.screen.find(text, self.seen)) < 0:
            if not self.pump():
                raise EOFError(f"{text!r} never came: {self.screen!r}")
        begin, self.seen = self.seen, found + len(text)
        return self.screen[begin:self.seen]

    def wait_answer(self, count):
        while len(self.answers) < count:
            self.pump()

    def type(self, text):
        os.write(self.master, text)

    def say(self, text):
        """Types one line and returns everything before the next prompt."""
        self.type(text + b"\n")
        self.wait(b"\n")
        return self.wait()

    def leave(self, text=b"\x04"):
        """Types `text`, waits for the end and returns the exit status."""
        if text:
            self.type(text)
        while self.pump():
            pass
        status = self.process.wait(GUARD)
        os.close(self.master)
        self.process.stdout.close()
        return status


def said_by(*args):
    run = tool("run", model, *GREEDY, *args)
    return run.stdout + (b"" if run.stdout.endswith(b"\n") else b"\n")


def number(pattern, text):
    found = re.search(pattern, text)
    return int(found[1]) if found else -1


def turns(term):
    chat = Chat(model, "-n", 8, *GREEDY, term=term)
    greeting = chat.wait()
    case(f"{term}: the greeting says how to get help", b"/help" in greeting and b"Ctrl-D" in greeting, greeting)
    chat.say(b"abc the")
    first = said_by("-p", "abc the", "-n", 8)
    case(f"{term}: the first answer equals one without a chat, and stdout has nothing else", chat.answers == first,
         (chat.answers, first))
    stats = chat.say(b"/stats")
    case(f"{term}: /stats shows statistics", number(rb"context +(\d+) of 256", stats) > 15 and b"tokens/s" in stats, stats)
    chat.say(b"more")
    stats = chat.say(b"/stats")
    case(f"{term}: the second turn reuses the first one's KV cache",
         number(rb"(\d+) of them held", stats) > 15 and b"4 messages" in stats, stats)
    before = chat.answers
    chat.say(b"/reset")
    chat.say(b"abc the")
    case(f"{term}: after a reset the first answer comes again", chat.answers == before + first, chat.answers)
    chat.type("é".encode() + b"\\\n")
    chat.wait(b"... ")
    chat.say(b"x")
    stats = chat.say(b"/stats")
    case(f"{term}: two lines make one message", b"4 messages" in stats, stats)
    case(f"{term}: Ctrl-D leaves the chat", chat.leave() == 0, chat.screen)
    case(f"{term}: no terminal output is in the answers", b"\x1b" not in chat.answers and b">" not in chat.answers
         and b"held" not in chat.answers, chat.answers)


def commands():
    chat = Chat(model, "-n", 4, "--temp", "0.5", "--seed", 3)
    chat.wait()
    case("/help lists the commands", all(name in chat.say(b"/help") for name in (b"/reset", b"/stats", b"/set", b"Ctrl-C")))
    table = chat.say(b"/set")
    case("/set shows the options and their values", re.search(rb"temp +0.5 ", table) and re.search(rb"seed +3 ", table)
         and b"top-k" in table, table)
    case("/set sets a value", re.search(rb"temp +0.25 ", chat.say(b"/set temp 0.25") + chat.say(b"/set")))
    case("/set without a value restores it", re.search(rb"temp +0.5 ", chat.say(b"/set temp") + chat.say(b"/set")))
    flags = [re.search(rb"ignore-eos +(\w+)", chat.say(line) + chat.say(b"/set"))[1]
             for line in (b"/set", b"/set ignore-eos on", b"/set ignore-eos off")]
    case("a flag is set and reset", flags == [b"off", b"on", b"off"], flags)
    for bad in (b"/set temp x", b"/set temp 101", b"/set nix 1", b"/nix", b"/"):
        said = chat.say(bad)
        case(f"{bad} is refused with one line", said.count(b"\r\n") == 1 and b"error[usage]" in said, said)
    case("commands generate no answer", chat.answers == b"", chat.answers)
    chat.say(b"the")
    before = chat.answers
    chat.say(b"/reset")
    chat.say(b"/set seed 3")
    chat.say(b"the")
    case("a seed gives the same answer again", chat.answers == before * 2, chat.answers)
    case("invalid UTF-8 is refused, and the chat goes on", b"error[prompt]" in chat.say(b"\xff\xfe"), chat.screen)
    chat.type(b"typed and given up\x03")
    chat.wait()
    case("Ctrl-C discards the line, and the chat goes on", b"0 messages" not in chat.say(b"/stats"), chat.screen)
    case("the chat ends with status 0", chat.leave() == 0)


def seeds():
    chat = Chat(model, "-n", 24, "--temp", 100, "--top-k", 0, "--top-p", 1, "--min-p", 0)
    chat.wait()

    def answer(*settings):
        before = len(chat.answers)
        for line in (b"/reset", *settings, b"the"):
            chat.say(line)
        return chat.answers[before:]
    seven = answer(b"/set seed 7")
    case("a seed is kept when another option is set", answer(b"/set seed 7", b"/set temp 100") == seven, seven)
    case("/set seed draws a new one", answer(b"/set seed") != seven, seven)
    case("the chat ends", chat.leave() == 0)


def context():
    chat = Chat(model, "-c", 64, "--ignore-eos", *GREEDY)
    chat.wait()
    said = chat.say(b"the")
    case("a full context gives one line that says what to do", said.count(b"/reset") == 1 and b"64 tokens" in said, said)
    said = chat.say(b"more")
    case("so does a question that does not fit", b"error[prompt]" in said and b"/reset" in said and b"-c" in said, said)
    before = chat.answers
    chat.say(b"/reset")
    chat.say(b"the")
    case("after a reset it answers again", chat.answers == before * 2, (before, chat.answers))
    case("the chat ends", chat.leave() == 0)


def limit():
    metadata, tensors = tiny_parts(context=4000)
    metadata["general.sampling.temp"] = 0.0
    chat = Chat(write("limit.gguf", gguf(metadata, tensors)), "--ignore-eos")
    chat.wait()
    said = chat.say(b"the")
    case("an answer that reaches the limit gets a line that says what to do", said.count(b"stopped at the limit of 1024 tokens")
         == said.count(b"/set predict N") == 1, said)
    table = chat.say(b"/set")
    case("the chat uses the file's settings", re.search(rb"temp +0 ", table) and re.search(rb"top-k +40 ", table), table)
    before = chat.answers
    chat.say(b"/reset")
    said = chat.say(b"/set predict 3") + chat.say(b"the")
    more = chat.answers[len(before):]
    case("a limit set by the user gives no such line", b"stopped" not in said and 0 < len(more) < 20 and before.startswith(more[:-1]),
         (said, more))
    chat.say(b"/set temp 2")
    table = chat.say(b"/set temp") + chat.say(b"/set")
    case("a setting is restored to the file's", re.search(rb"temp +0 ", table), table)
    case("the chat ends", chat.leave() == 0)


def stopping():
    big = tiny("big.gguf", context=262144)  # an answer would take minutes if it were not stopped
    chat = Chat(big, "-c", 262144, "--ignore-eos", "-n", -1)  # nor may any of its answers end first
    chat.wait()
    chat.type(b"abc the\n")
    chat.wait_answer(3)
    chat.type(b"\x03")
    chat.wait()
    stats = chat.say(b"/stats")
    case("Ctrl-C stops the answer, and its text so far stays", b"2 messages" in stats and b"ended by   cancelled" in stats
         and 15 < number(rb"context +(\d+) of", stats) < 262143, stats)
    chat.type(b"more\n")
    chat.wait_answer(len(chat.answers) + 1)
    chat.type(b"\x03")
    chat.wait()
    stats = chat.say(b"/stats")
    case("Ctrl-C works again; the stopped answer is in the conversation", number(rb"(\d+) of them held", stats) > 15
         and b"4 messages" in stats, stats)
    chat.type(b"more\n")
    chat.wait_answer(len(chat.answers) + 1)
    chat.process.send_signal(signal.SIGTERM)
    case("SIGTERM ends an answer and the chat", chat.leave(b"") == 128 + signal.SIGTERM, chat.screen)
    chat = Chat(model)
    chat.wait()
    chat.process.send_signal(signal.SIGTERM)
    case("SIGTERM ends a chat that waits for input", chat.leave(b"") == 128 + signal.SIGTERM, chat.screen)
    chat = Chat(model, term="xterm")
    chat.wait()
    chat.process.send_signal(signal.SIGTERM)
    case("SIGTERM ends a chat while a line is edited", chat.leave(b"") == 128 + signal.SIGTERM, chat.screen)


def idle():
    """A waiting chat uses no CPU: eventually there is a half second in which none of its threads ran."""
    chat = Chat(model, "-n", 8)
    chat.wait()
    chat.say(b"abc")

    def used():
        tasks = f"/proc/{chat.process.pid}/task"
        return [open(f"{tasks}/{task}/schedstat", encoding="ascii").read().split()[0] for task in sorted(os.listdir(tasks))]

    try:
        while True:
            before = used()
            time.sleep(0.5)
            if used() == before or time.monotonic() > chat.ended:
                break
        case("a waiting chat uses no CPU", used() == before, before)
    except FileNotFoundError:
        skip("a chat that waits uses no CPU", "this kernel does not count the time of threads")
    case("the chat ends", chat.leave() == 0)


def editing():
    chat = Chat(model, "-n", 4, term="xterm")
    chat.wait()
    chat.say(b"thx\x7fe")  # backspace deletes a letter
    chat.say(b"\x10")  # Ctrl-P: the previous line
    stats = chat.say(b"/stats")
    case("lines can be edited and recalled", b"4 messages" in stats, chat.screen)
    case("the chat ends", chat.leave() == 0)
    path = at("state/forge/chat_history")
    with open(path, encoding="utf-8", errors="replace") as lines:
        entries = lines.read().splitlines()
    case("the history is saved for its owner only", entries[-2:] == ["the", "/stats"]
         and os.stat(path).st_mode & 0o777 == 0o600, entries)
    again = Chat(model, "-n", 4, term="xterm")
    again.wait()
    again.say(b"\x10\x10")
    case("the next chat has the history", b"2 messages" in again.say(b"/stats"), again.screen)
    case("the next chat ends", again.leave() == 0)


def reasoning():
    """A template that opens reasoning: what the model says is shown apart, and does not stay in the conversation."""
    metadata, tensors = tiny_parts()
    metadata["tokenizer.chat_template"] += "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> #}"
    chat = Chat(write("thinks.gguf", gguf(metadata, tensors)), "-n", 8, "--ignore-eos", *GREEDY)
    chat.wait()
    chat.say(b"abc the")
    case("reasoning is between lines that say so", re.fullmatch(rb"\[reasoning\]\n.+\n\[end of reasoning\]\n", chat.answers, re.S),
         chat.answers)
    case("the answer without it is empty", b"2 messages" in chat.say(b"/stats"), chat.screen)
    case("the chat ends", chat.leave() == 0)


def no_chat():
    """Runs with a pipe, --json or a prompt do not start a chat."""
    plain = tool("run", model, *GREEDY, "-n", 8, stdin=b"/stats")
    case("input from a pipe is a prompt", plain.returncode == 0 and plain.stdout == tool("run", model, *GREEDY, "-n", 8, "-p", "/stats").stdout)
    chat = Chat(model, "--json", "-n", 2)
    chat.wait(b"Ctrl-D")
    chat.type(b"abc the\n\x04")
    case("--json on a terminal gives one answer", chat.leave(b"") == 0
         and json.loads(chat.answers)["text"] is not None, chat.answers)
    chat = Chat(model, "-n", 2, "-p", "x", *GREEDY)
    case("-p on a terminal gives one answer", chat.leave(b"") == 0 and chat.answers == tool("run", model, *GREEDY, "-n", 2, "-p", "x").stdout, chat.answers)
    refused = Chat(model, "--raw", "--system", "x")
    case("an impossible option is refused before the first question", refused.leave(b"") == 2, refused.screen)


try:
    os.close(os.openpty()[0])
except OSError as error:
    skip("the chat", f"there are no pseudo-terminals here ({error})")
else:
    for part in (lambda: turns(None), lambda: turns("xterm"), commands, seeds, context, limit, stopping, idle, editing, reasoning, no_chat):
        try:
            part()
        except (TimeoutError, EOFError) as error:
            case("no part hangs or ends early", False, error)
finish()
