"""Read a token store with pyarrow and compare it with its manifest.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python check.py STORE
    refrain data epochs STORE --mode repack --seq 512 --seed 7 --epoch 3 --json --tokens |
        VENV/bin/python check.py STORE --rows - --mode repack --seq 512 --seed 7 --epoch 3

The first form checks every count, length, checksum and id, reads one shard through
polars, and queries it with DuckDB through pyarrow. The second form computes the
rows of one epoch from docs/formats/stream.md alone and compares them with what the
program printed, spans and tokens.
"""

import argparse
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.ipc as ipc
import xxhash

from stream import Stream


def check_store(path):
    man = json.loads((path / "manifest.json").read_text())
    lengths = memoryview((path / "lengths.u32").read_bytes()).cast("I")
    assert len(lengths) == man["documents"], "lengths.u32"
    docs, at = [], 0
    item = {"uint16": pa.uint16(), "uint32": pa.uint32()}[man["dtype"]]
    for sh in man["shards"]:
        raw = (path / sh["file"]).read_bytes()
        assert len(raw) == sh["bytes"]
        for b in sh["batches"]:
            got = xxhash.xxh64_hexdigest(raw[b["offset"] : b["offset"] + b["bytes"]])
            assert got == b["xxh64"], (sh["file"], b["offset"])
        with ipc.open_file(pa.memory_map(str(path / sh["file"]))) as f:
            want = [("tokens", pa.list_(item)), ("doc_id", pa.uint64()), ("source", pa.dictionary(pa.int32(), pa.string()))]
            assert [(c.name, c.type) for c in f.schema] == want, f.schema
            assert f.num_record_batches == len(sh["batches"])
            for k in range(f.num_record_batches):
                rec = f.get_batch(k)
                rec.validate(full=True)
                assert rec.num_rows == sh["batches"][k]["documents"]
                values = rec["tokens"].flatten().to_numpy()
                assert len(values) == sh["batches"][k]["tokens"]
                assert int(values.max()) < man["vocab"]
                assert values.ctypes.data % 64 == 0, "values are not aligned"
                for row in rec["tokens"]:
                    ids = row.values.to_numpy()
                    assert len(ids) == lengths[at], at
                    eos, bos = man["boundary"]["eos"], man["boundary"]["bos"]
                    assert eos is None or ids[-1] == eos, at
                    assert bos is None or ids[0] == bos, at
                    docs.append(ids)
                    at += 1
    assert at == man["documents"] and sum(lengths) == man["tokens"]
    return man, docs


def other_readers(path, man):
    sh = man["shards"][0]
    out = []
    try:
        import polars as pl

        df = pl.read_ipc(path / sh["file"])
        assert df.height == sh["documents"] and df["tokens"].list.len().sum() == sh["tokens"]
        out.append("polars")
    except ImportError:
        pass
    try:
        import duckdb

        with ipc.open_file(pa.memory_map(str(path / sh["file"]))) as f:
            corpus = f.read_all()
        n = duckdb.sql("select sum(len(tokens)) from corpus").fetchall()[0][0]
        assert n == sh["tokens"]
        out.append("duckdb over pyarrow")
    except ImportError:
        pass
    return out


def check_rows(docs, a):
    s = Stream([len(d) for d in docs], a.mode, a.seed, a.seq, a.tail, a.block)
    want = s.rows(a.epoch)
    lines = sys.stdin if a.rows == "-" else open(a.rows)
    n = 0
    for n, (line, spans) in enumerate(zip(lines, want), 1):
        row = json.loads(line)
        assert row["epoch"] == a.epoch and row["row"] == n - 1, row
        assert row["spans"] == spans, (n, row["spans"], spans)
        if "tokens" in row:
            ids = [int(t) for d, lo, hi in spans for t in docs[d][lo:hi]]
            assert row["tokens"] == ids + [0] * (a.seq - len(ids)), n
    assert n > 0, "no rows"
    return n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("store", type=pathlib.Path)
    p.add_argument("--rows")
    p.add_argument("--mode", default="repack")
    p.add_argument("--seq", type=int, default=512)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--epoch", type=int, default=0)
    p.add_argument("--tail", default="drop")
    p.add_argument("--block", type=int, default=0)
    a = p.parse_args()
    man, docs = check_store(a.store)
    print(f"pyarrow {pa.__version__}: {man['documents']} documents, {man['tokens']} tokens, {len(man['shards'])} shards agree", end="")
    print("".join(", " + r for r in other_readers(a.store, man)))
    if a.rows:
        print(f"{check_rows(docs, a)} rows of epoch {a.epoch} agree")


if __name__ == "__main__":
    main()
