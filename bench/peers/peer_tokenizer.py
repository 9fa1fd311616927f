"""Peer for bench tokenizer: tiktoken, gigatoken or tokenizers on the same
documents, one thread. One JSON line in, one out; times are CPU seconds."""
import json
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
kind, vocab, docs_file = sys.argv[1:4]
with open(docs_file, "rb") as f:
    raw = f.read()
docs, at = [], 0
while at < len(raw):  # u32 length, bytes
    n = int.from_bytes(raw[at:at + 4], "little")
    docs.append(raw[at + 4:at + 4 + n])
    at += 4 + n
text = [d.decode("utf-8", "replace") for d in docs]


def make():
    if kind == "tokenizers":
        import tokenizers
        t = tokenizers.Tokenizer.from_file(vocab)
        return tokenizers.__version__, lambda: [t.encode(d, add_special_tokens=False).ids for d in text]
    if kind == "gigatoken":
        import gigatoken
        t = gigatoken.Tokenizer(vocab)
        return getattr(gigatoken, "__version__", "?"), lambda: [t.encode(d) for d in docs]
    raise SystemExit(f"unknown peer {kind}")


version, run = make()
print(json.dumps({kind: version, "documents": len(docs)}), flush=True)
for line in sys.stdin:
    version, run = make()
    t = time.process_time()
    run()
    cold = time.process_time() - t
    t = time.process_time()
    ids = run()
    warm = time.process_time() - t
    total = sum(len(i) for i in ids)
    first = [int(v) for v in list(ids[0])[:64]]
    print(json.dumps({"cold_s": cold, "warm_s": warm, "tokens": total, "first": first}), flush=True)
