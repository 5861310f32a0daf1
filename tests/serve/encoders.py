#!/usr/bin/env python3
"""forge-serve with encoders: embeddings and reranking over HTTP, against forge-run, reference vectors and formulas.

usage: FORGE_BIN=DIR encoders.py SHARED
"""
import base64
import json
import math
import os
import struct
import sys

from lib_serve import Server, at, case, finish, skip, write

from lib_cli import Random, gguf, gguf_entry, tool  # noqa: E402
from lib_schema import OPENAPI, faults  # noqa: E402

SHARED = sys.argv[1]
WIDTH, FFN, CONTEXT, CLS, SEP = 64, 96, 96, 2, 3
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *("\u2581" + chr(c) for c in range(97, 123)), *map(chr, range(97, 123))]
NOT_TEXT = [{"path": "/v1/completions", "prompt": "a"}, {"path": "/generate", "prompt": "a"},
            {"path": "/generate/stream", "prompt": "a"},
            {"path": "/v1/chat/completions", "messages": [{"role": "user", "content": "a"}]}]


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def bert(pooling, head=None):
    """A small random BERT. head: name -> (dims, bytes) of a reranker's tensors."""
    metadata = {
        "general.architecture": "bert", "bert.block_count": 2, "bert.context_length": CONTEXT, "bert.embedding_length": WIDTH,
        "bert.feed_forward_length": FFN, "bert.attention.head_count": 4, "bert.attention.layer_norm_epsilon": 1e-6,
        "bert.attention.causal": False, "bert.pooling_type": pooling, "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": [3] * 5 + [1] * 52,
        "tokenizer.ggml.cls_token_id": CLS, "tokenizer.ggml.seperator_token_id": SEP, "tokenizer.ggml.unknown_token_id": 1}
    random, tensors = Random(3), {}

    def linear(stem, cols, rows):
        tensors[stem + ".weight"] = ((cols, rows), random.floats(cols * rows, 0.3))
        tensors[stem + ".bias"] = ((rows,), random.floats(rows, 0.2))

    def norm(stem):
        tensors[stem + ".weight"] = ((WIDTH,), struct.pack(f"<{WIDTH}f", *[1.0] * WIDTH))
        tensors[stem + ".bias"] = ((WIDTH,), random.floats(WIDTH, 0.2))
    for name, rows in (("token_embd", len(TOKENS)), ("token_types", 2), ("position_embd", CONTEXT)):
        tensors[name + ".weight"] = ((WIDTH, rows), random.floats(WIDTH * rows, 1))
    norm("token_embd_norm")
    for i in range(2):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            linear(f"blk.{i}.{name}", WIDTH, WIDTH)
        norm(f"blk.{i}.attn_output_norm")
        linear(f"blk.{i}.ffn_up", WIDTH, FFN)
        linear(f"blk.{i}.ffn_down", FFN, WIDTH)
        norm(f"blk.{i}.layer_output_norm")
    return gguf(metadata, tensors | (head or {}))


def vectors(server, inputs, **body):
    answer = server.post("/v1/embeddings", {"input": inputs, **body})[1]
    return [d["embedding"] for d in answer["data"]]


def bits(server, inputs):
    return vectors(server, inputs, encoding_format="base64")


def ids_of(server, text):
    return server.post("/tokenize", {"content": text})[1]["tokens"]


def refused(server, name, path, body, code, *parts):
    status, answer = server.post(path, body)
    error = answer.get("error", {})
    case(name, status == 400 and error.get("code") == code and all(part in error["message"] for part in parts), answer)


def embeddings(server, model):
    texts = ["a", "bad cab", "fed a bed", "x" * 90] + ["ab " * (1 + i % 30) for i in range(40)]
    status, answer = server.post("/v1/embeddings", {"model": "mean", "input": texts})
    case("an encoder's embeddings fit the schema", status == 200 and not faults(OPENAPI["components"]["schemas"]["Embeddings"], answer),
         answer)
    rows = [d["embedding"] for d in answer["data"]]
    case("they have length 1", len(rows) == 44 and all(abs(sum(x * x for x in row) - 1) < 1e-5 for row in rows))
    ids = [ids_of(server, text) for text in texts]
    case("a text is enclosed by CLS and SEP", ids[0] == [CLS, 5, SEP], ids[0])
    case("usage counts the tokens", answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] == sum(map(len, ids)))
    together = bits(server, texts)
    case("a batch has the same bits as each text alone", together == [bits(server, text)[0] for text in texts])
    case("base64 has the same numbers", [floats(base64.b64decode(c)) for c in together] == [
        floats(struct.pack(f"<{WIDTH}f", *row)) for row in rows])
    case("ids give the same vectors", bits(server, ids) == together and bits(server, ids[0]) == together[:1])
    run = [json.loads(tool("run", model, "--embed", "-p", text).stdout)["embedding"] for text in texts[:3]]
    case("forge-run gives the same vectors", run == rows[:3], (run[0][:3], rows[0][:3]))
    for body in NOT_TEXT:
        body = dict(body)
        path = body.pop("path")
        refused(server, f"an encoder refuses {path}", path, body, "not_supported", "encoder", "/v1/embeddings")
    refused(server, "a text longer than the context", "/v1/embeddings", {"input": ["a", "x" * 95]}, "context_length_exceeded", "97", "96")
    refused(server, "more dimensions", "/v1/embeddings", {"input": "a", "dimensions": 65}, "invalid_value", "65", "64")
    case("all dimensions", vectors(server, "a", dimensions=WIDTH) == rows[:1])
    listed = json.loads(server.get("/v1/models")[2])["data"]
    case("the model is listed", [(m["id"], m["max_model_len"]) for m in listed] == [("mean", CONTEXT)], listed)
    metrics = server.idle()
    case("metrics count prompts", metrics["forge_prompt_tokens_total"] > 0 and metrics["forge_generation_tokens_total"] == 0)


def poolings():
    model = write("cls.gguf", bert(2))
    servers = {name: Server(model, "--pooling", name) for name in ("auto", "cls", "mean", "last")}
    rows = {name: vectors(server, "bad cab")[0] for name, server in servers.items()}
    case("auto is the file's pooling", rows["auto"] == rows["cls"])
    case("poolings differ", len({tuple(row) for row in rows.values()}) == 3, rows)
    for name, row in rows.items():
        run = json.loads(tool("run", model, "--embed", "-p", "bad cab", "--pooling", name).stdout)["embedding"]
        case(f"forge-run --pooling {name} is the same", run == row)
    cut = vectors(servers["auto"], "bad cab", dimensions=8)[0]
    case("fewer dimensions are the first ones", len(cut) == 8 and abs(sum(x * x for x in cut) - 1) < 1e-5
         and all(abs(a / cut[0] - b / rows["auto"][0]) < 1e-4 for a, b in zip(cut, rows["auto"])))
    for name, server in servers.items():
        case(f"--pooling {name} ends well", server.stop() == 0)


def rerank(server, rows_of, scores_of, what):
    documents = ["bad cab", {"text": "fed"}, "a", "bad cab"]
    status, answer = server.post("/v1/rerank", {"query": "bad", "documents": documents, "return_documents": True})
    case(f"{what}: the answer fits the schema", status == 200 and not faults(OPENAPI["components"]["schemas"]["Reranked"], answer), answer)
    results = answer["results"]
    expected = scores_of(rows_of, "bad", ["bad cab", "fed", "a", "bad cab"])
    case(f"{what}: scores", all(abs(r["relevance_score"] - expected[r["index"]]) < 2e-3 for r in results), (results, expected))
    order = [r["index"] for r in results]
    case(f"{what}: the best first, equal ones in order", order == sorted(range(4), key=lambda i: -results[order.index(i)]["relevance_score"]),
         results)
    case(f"{what}: texts", [r["document"]["text"] for r in results] == [["bad cab", "fed", "a", "bad cab"][i] for i in order], results)
    best = server.post("/rerank", {"query": "bad", "documents": documents, "top_n": 2})[1]["results"]
    case(f"{what}: the best two", best == [{k: r[k] for k in ("index", "relevance_score")} for r in results[:2]], best)
    alone = [server.post("/rerank", {"query": "bad", "documents": [d]})[1]["results"][0]["relevance_score"] for d in documents]
    case(f"{what}: a document alone has the same score", alone == [results[order.index(i)]["relevance_score"] for i in range(4)], alone)
    refused(server, f"{what}: a long document", "/v1/rerank", {"query": "a", "documents": ["a", "x" * 95]}, "context_length_exceeded", "96")
    refused(server, f"{what}: no documents", "/v1/rerank", {"query": "a", "documents": []}, "invalid_value")
    refused(server, f"{what}: no query", "/v1/rerank", {"documents": ["a"]}, "invalid_value")
    return answer["usage"]["total_tokens"]


def cosines(server, query, documents):
    rows = vectors(server, [query, *documents])
    return [sum(a * b for a, b in zip(rows[0], row)) for row in rows[1:]]


def rerankers():
    random = Random(9)
    parts = {"cls.weight": ((WIDTH, WIDTH), random.floats(WIDTH * WIDTH, 0.3)), "cls.bias": ((WIDTH,), random.floats(WIDTH, 0.3)),
             "cls.output.weight": ((WIDTH, 1), random.floats(WIDTH, 0.5)), "cls.output.bias": ((1,), random.floats(1, 1))}
    dense, bias, out, constant = (floats(data) for _, data in parts.values())
    plain = write("plain.gguf", bert(2))

    def scores(server, query, documents):
        """The head's formula on the rows that the model without a head gives for the pairs."""
        result = []
        for document in documents:
            pair = ids_of(server, query) + ids_of(server, document)[1:]  # [CLS] query [SEP] document [SEP]
            path = at("row.f32")
            tool("run", plain, "--tokens", ",".join(map(str, pair)), "--dump-embedding", path)
            with open(path, "rb") as file:
                row = floats(file.read())
            hidden = [math.tanh(bias[n] + sum(dense[n * WIDTH + k] * row[k] for k in range(WIDTH))) for n in range(WIDTH)]
            result.append(constant[0] + sum(a * b for a, b in zip(out, hidden)))
        return result
    model = write("rank.gguf", bert(4, parts))
    server = Server(model)
    tokens = rerank(server, server, scores, "a reranker")
    case("a reranker's usage counts pairs", tokens == sum(3 + 3 + len(d.replace(" ", "")) for d in ("bad cab", "fed", "a", "bad cab")), tokens)
    refused(server, "a reranker refuses embeddings", "/v1/embeddings", {"input": "a"}, "not_supported", "reranker", "/v1/rerank")
    refused(server, "a reranker refuses text", "/v1/completions", {"prompt": "a"}, "not_supported", "encoder")
    case("a reranker ends well", server.stop() == 0)
    for name, *args in (("run", "--embed", "-p", "a"), ("serve", "--port", "0", "--pooling", "mean")):
        run = tool(name, model, *args)
        case(f"forge-{name} {args[0]} refuses a reranker", run.returncode in (2, 3) and b"reranker" in run.stderr, run.stderr)
    run = tool("run", write("headless.gguf", bert(4)), "--embed", "-p", "a")
    case("a reranker without a head is refused", run.returncode == 3 and b"rank head" in run.stderr, run.stderr)


def with_vocabulary(path):
    """The GGUF file with a vocabulary of single tokens in place of none: a server needs one."""
    with open(path, "rb") as file:
        data = file.read()
    _, _, tensor_count, count = struct.unpack_from("<IIQQ", data)
    place, kept, words = 24, [], 512

    def text():
        nonlocal place
        (size,) = struct.unpack_from("<Q", data, place)
        place += 8 + size
        return data[place - size:place]

    def value(kind):
        nonlocal place
        if kind == 8:
            text()
        elif kind == 9:
            item, size = struct.unpack_from("<IQ", data, place)
            place += 12
            for _ in range(size):
                value(item)
        else:
            place += {0: 1, 1: 1, 2: 2, 3: 2, 7: 1, 10: 8, 11: 8, 12: 8}.get(kind, 4)
    for _ in range(count):
        begin, key = place, text()
        (kind,) = struct.unpack_from("<I", data, place)
        place += 4
        value(kind)
        if not key.startswith(b"tokenizer.ggml.model"):
            kept.append(data[begin:place])
    begin = place
    for _ in range(tensor_count):
        text()
        (rank,) = struct.unpack_from("<I", data, place)
        place += 4 + 8 * rank + 12
    vocabulary = {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": TOKENS[:5] + [f"\u2581w{i}" for i in range(5, words)],
                  "tokenizer.ggml.token_type": [3] * 5 + [1] * (words - 5), "tokenizer.ggml.cls_token_id": CLS,
                  "tokenizer.ggml.seperator_token_id": SEP, "tokenizer.ggml.unknown_token_id": 1}
    kept += [gguf_entry(*entry) for entry in vocabulary.items()]
    head = struct.pack("<IIQQ", 0x46554747, 3, tensor_count, len(kept)) + b"".join(kept) + data[begin:place]
    return head + b"\0" * (-len(head) % 32) + data[place + -place % 32:]


def references():
    folder = os.path.join(SHARED, "families", "embeddings")
    names = sorted(f[:-5] for f in os.listdir(folder) if f.endswith(".json")) if os.path.isdir(folder) else []
    if not names:
        skip("reference embeddings over HTTP", "there is no reference data")
    for name in names:
        with open(os.path.join(folder, name + ".json")) as file:
            about = json.load(file)
        with open(os.path.join(folder, name + ".embeddings.f32"), "rb") as file:
            flat = floats(file.read())
        width = about["embeddings_shape"][1]
        server = Server(write(name + ".gguf", with_vocabulary(os.path.join(folder, name + ".gguf"))))
        got, expected = [], []
        for row, start in zip(vectors(server, about["sequences"]), range(0, len(flat), width)):
            reference = flat[start:start + width]
            norm = math.sqrt(sum(x * x for x in reference))
            got += row
            expected += [x / norm for x in reference]
        mean = sum(expected) / len(expected)
        error = sum((a - b) ** 2 for a, b in zip(got, expected)) / sum((b - mean) ** 2 for b in expected)
        bar = max(3 * about["peer_nmse"], 1e-5)
        print(f"{name}: NMSE {error:.2e}, bar {bar:.2e}", flush=True)
        case(f"{name}: reference vectors over HTTP", error <= bar, (error, bar))
        case(f"{name}: it ends well", server.stop() == 0)


mean_model = write("mean.gguf", bert(1))
running = Server(mean_model)
embeddings(running, mean_model)
rerank(running, running, cosines, "cosines")
case("it ends well", running.stop() == 0, running.lines[-3:])
poolings()
rerankers()
references()
finish()
