#!/usr/bin/env python3
"""Valid and invalid requests that schemathesis generates from serve/protocol/openapi.json, sent to forge-serve with a
generated model: answers match the file, no answer is a 500, and nothing is left behind.

usage: FORGE_BIN=DIR schema_client.py SCHEMATHESIS OPENAPI [SECONDS]     ninja -C BUILD serve_schema fetches the package
"""
import subprocess
import sys

from lib_serve import Server, case, finish, tiny, until

# Two checks are left out. Not every request that breaks the schema is refused: null is accepted where a member may be
# absent, and members that only other servers use may hold anything. And a 5xx status may be correct: 504 is the answer
# to a timeout of a millisecond. Status 500 is looked for below.
CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance"
# One worker: Python 3.11 cannot parse source in several threads at once (gh-106905), which hypothesis does.
server = Server(tiny(context=512), "--parallel", 8, "--request-timeout", 20)
begun = {what: server.count(what) for what in ("fd", "task")}
ran = subprocess.run([sys.argv[1], "run", sys.argv[2], "--url", f"http://127.0.0.1:{server.port}", "--checks", CHECKS,
                      "--seed", "8", "--workers", "1", "--generation-database", "none", "--max-time",
                      sys.argv[3] if len(sys.argv) > 3 else "120"], capture_output=True, text=True)
print(ran.stdout[-3000:])
case("schemathesis finds nothing", ran.returncode == 0, ran.stderr[-1000:])
metrics = server.idle()
served = {name: count for name, count in metrics.items() if name.startswith("forge_http_responses_total")}
print(served)
case("no answer is a 500", not any('"500"' in name for name in served), served)
case("as many file descriptors and threads as before", until(lambda: begun == {what: server.count(what) for what in begun}, "all closed"), begun)
case("it ends well", server.stop() == 0, server.lines[-3:])
finish()
