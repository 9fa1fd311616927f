"""Peer for bench tokenizer and bench train-tokenizer, on one thread.

    peer_tokenizer.py gigatoken|tiktoken|tokenizers VOCAB DOCS
    peer_tokenizer.py train SIZE DOCS PATTERN

VOCAB is a tokenizer.json; DOCS holds documents as u32 length and UTF-8 bytes;
PATTERN splits text. One JSON line in, one out. Times are
CPU seconds of the fastest call that the library has for a list of documents; making
lists of the ids, and their digest, is not timed.
"""
import hashlib
import json
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def read_docs(path):
    with open(path, "rb") as f:
        raw = f.read()
    docs, at = [], 0
    while at < len(raw):
        n = int.from_bytes(raw[at : at + 4], "little")
        docs.append(raw[at + 4 : at + 4 + n])
        at += 4 + n
    return docs


def byte_of_char():
    """The byte alphabet of tokenizer.json."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars, n = {chr(b): b for b in own}, 0
    for b in range(256):
        if b not in own:
            chars[chr(256 + n)] = b
            n += 1
    return chars


def tiktoken_of(path):
    import tiktoken

    spec = json.load(open(path, encoding="utf-8"))
    chars = byte_of_char()
    added = {t["id"] for t in spec["added_tokens"]}
    ranks = {bytes(chars[c] for c in name): i for name, i in spec["model"]["vocab"].items() if i not in added}
    pre = spec["pre_tokenizer"]
    pattern = pre["pretokenizers"][0]["pattern"]["Regex"] if pre["type"] == "Sequence" else GPT2
    specials = {t["content"]: t["id"] for t in spec["added_tokens"]}
    return tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)


def version(kind):
    from importlib.metadata import version

    return version(kind)


def maker(kind, vocab, docs):
    """A function that makes a fresh tokenizer, as (encode all, ids of the result)."""
    text = [d.decode() for d in docs]

    def gigatoken():
        import gigatoken

        t = gigatoken.Tokenizer(vocab)
        return lambda: t.encode_batch(docs, parallel=False), lambda r: r.to_list()

    def tokenizers():
        import tokenizers

        t = tokenizers.Tokenizer.from_file(vocab)
        return lambda: t.encode_batch_fast(text, add_special_tokens=False), lambda r: [e.ids for e in r]

    def tiktoken():
        t = tiktoken_of(vocab)
        return lambda: [t.encode_ordinary(d) for d in text], lambda r: r

    kinds = {"gigatoken": gigatoken, "tokenizers": tokenizers, "tiktoken": tiktoken}
    if kind not in kinds:
        raise SystemExit(f"unknown peer {kind}; there are {', '.join(kinds)}")
    return kinds[kind]


def digest(lists):
    import array

    h, n = hashlib.sha256(), 0
    for ids in lists:
        a = array.array("I", ids)
        if sys.byteorder == "big":
            a.byteswap()
        h.update(a.tobytes())
        n += len(a)
    return n, h.hexdigest()


def serve(answer):
    for _ in sys.stdin:
        print(json.dumps(answer()), flush=True)


def encode(kind, vocab, docs_file):
    docs = read_docs(docs_file)
    make = maker(kind, vocab, docs)
    make()
    print(json.dumps({kind: version(kind), "documents": len(docs)}), flush=True)
    once = []

    def answer():
        run, ids = make()
        t = time.process_time()
        run()
        cold = time.process_time() - t
        t = time.process_time()
        result = run()
        warm = time.process_time() - t
        if not once:
            once.append(digest(ids(result)))
        return {"cold_s": cold, "warm_s": warm, "tokens": once[0][0], "digest": once[0][1]}

    serve(answer)


def train(size, docs_file, pattern):
    import tokenizers
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    text = [d.decode() for d in read_docs(docs_file)]
    print(json.dumps({"tokenizers": tokenizers.__version__, "documents": len(text)}), flush=True)

    def answer():
        tok = Tokenizer(models.BPE())
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=["<|endoftext|>"],
            min_frequency=0,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        t = time.process_time()
        tok.train_from_iterator(text, trainer)
        cpu = time.process_time() - t
        merges = json.loads(tok.to_str())["model"]["merges"]
        lines = "".join(f"{a} {b}\n" for a, b in merges)
        return {"cpu_s": cpu, "merges": len(merges), "digest": hashlib.sha256(lines.encode()).hexdigest()}

    serve(answer)


if sys.argv[1] == "train":
    train(int(sys.argv[2]), sys.argv[3], sys.argv[4])
else:
    encode(*sys.argv[1:4])
