#!/usr/bin/env python3
"""How forge performs on a busy machine. Run by hand on a machine of at least two cores with no other load; not part of
continuous integration, because the results are timings.

usage: FORGE_BIN=build/tools busy.py MODEL.gguf

  hog       another process uses all of one core: decode is at most 3 times slower
  together  two forge processes at once: each keeps at least 40 % of its speed when alone
  idle      a chat that waits for its next question uses no CPU

Ends with "N passed, N failed"; exit 1 if any failed.
"""
import json
import os
import pty
import select
import statistics
import subprocess
import sys
import time

HOG_MOST, TOGETHER_LEAST, IDLE_MOST_TICKS = 3.0, 0.40, 1
ROUNDS, PREDICT, REPETITIONS, IDLE_SECONDS = 3, 64, 4, 5


def bench(tools, model):
    """Starts a decode benchmark on all cores."""
    return subprocess.Popen([os.path.join(tools, "forge-bench"), model, "--device", "cpu", "-p", "0", "-n", str(PREDICT),
                             "-r", str(REPETITIONS), "-o", "json"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def rate(process):
    text, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(1)  # forge-bench has printed the reason
    return json.loads(text)[0]["median_ts"]


def hog(core):
    """Starts a process that keeps one core busy."""
    return subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])


def cpu_ticks(pid):
    """CPU time of all threads of a process, in kernel clock ticks."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def read_quiet(terminal, seconds):
    """Reads the terminal until nothing has arrived for `seconds`; returns the text."""
    text = b""
    while select.select([terminal], [], [], seconds)[0]:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        text += piece
    return text


def idle_ticks(tools, model):
    """CPU time that a chat uses while it waits after an answer."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(os.path.join(tools, "forge-run"), ["forge-run", model, "--device", "cpu", "-n", "16"])
    try:
        read_quiet(terminal, 3)
        os.write(terminal, b"Hello\n")
        read_quiet(terminal, 3)
        before = cpu_ticks(pid)
        time.sleep(IDLE_SECONDS)
        return cpu_ticks(pid) - before
    finally:
        os.close(terminal)  # closing the terminal sends SIGHUP, which ends the chat
        os.waitpid(pid, 0)


def main():
    tools = os.environ.get("FORGE_BIN")
    if not tools or len(sys.argv) != 2 or not os.path.isfile(sys.argv[1]):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    model, cores = sys.argv[1], sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("busy.py: one core alone cannot show this")
    alone, hogged, together = [], [], []
    for _ in range(ROUNDS):  # alternating, so that other load on the machine affects all of them
        alone.append(rate(bench(tools, model)))
        taker = hog(cores[0])
        try:
            hogged.append(rate(bench(tools, model)))
        finally:
            taker.kill()
            taker.wait()
        both = [bench(tools, model), bench(tools, model)]
        together.append(min(rate(process) for process in both))
    usual = statistics.median(alone)
    slower, share = usual / statistics.median(hogged), statistics.median(together) / usual
    ticks = idle_ticks(tools, model)
    rows = (("hog", f"{slower:.2f} times slower, at most {HOG_MOST}", slower <= HOG_MOST),
            ("together", f"the slower of two keeps {100 * share:.0f} %, at least {100 * TOGETHER_LEAST:.0f}", share >= TOGETHER_LEAST),
            ("idle", f"{ticks} ticks of CPU time in {IDLE_SECONDS} s, at most {IDLE_MOST_TICKS}", ticks <= IDLE_MOST_TICKS))
    print(f"alone: {usual:.1f} tokens/s on {len(cores)} cores")
    for name, text, ok in rows:
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {text}")
    print(f"{sum(ok for *_, ok in rows)} passed, {sum(not ok for *_, ok in rows)} failed")
    sys.exit(not all(ok for *_, ok in rows))


if __name__ == "__main__":
    main()
