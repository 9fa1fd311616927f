"""Peers for bench ingest --compare peers: JSON lines of documents to ids on disk.

    peer_ingest.py datasets|datatrove TOKENIZER.JSON

The first answer tells versions. Each request {"inputs", "out", "workers"} makes
one corpus in the folder out and answers wall and CPU seconds, the number of ids
without boundaries and their sum."""
import glob
import importlib.metadata
import json
import os
import resource
import shutil
import sys
import time

import numpy as np

kind, vocab = sys.argv[1:3]
os.environ["LOGURU_LEVEL"] = "ERROR"  # datatrove tells of every task
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no answer


def say(v):
    answers.write(json.dumps(v) + "\n")
    answers.flush()


def cpu():
    return sum(r.ru_utime + r.ru_stime for r in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)))


def with_datasets(inputs, out, workers):
    import datasets
    from tokenizers import Tokenizer
    datasets.disable_progress_bars()
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if workers > 1 else "true"
    tok = Tokenizer.from_file(vocab)

    def encode(batch):
        return {"input_ids": [e.ids for e in tok.encode_batch(batch["text"], add_special_tokens=False)]}

    ds = datasets.load_dataset("json", data_files=inputs, split="train", cache_dir=os.path.join(out, "cache"))
    ds = ds.map(encode, batched=True, remove_columns=ds.column_names, num_proc=workers if workers > 1 else None)
    ds.save_to_disk(os.path.join(out, "ids"))
    return lambda: np.concatenate([c.values.to_numpy() for c in ds.data.column("input_ids").chunks])


def with_datatrove(inputs, out, workers):
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from datatrove.utils.logging import logger
    logger.remove()
    LocalPipelineExecutor(
        pipeline=[JsonlReader(os.path.dirname(inputs[0]), glob_pattern="*.jsonl"),
                  DocumentTokenizer(os.path.join(out, "ids"), tokenizer_name_or_path=vocab, shuffle_documents=False)],
        tasks=workers, workers=workers, logging_dir=os.path.join(out, "log"), skip_completed=False).run()

    def ids():
        from tokenizers import Tokenizer
        kind = np.uint16 if Tokenizer.from_file(vocab).get_vocab_size() <= 65536 else np.uint32
        return np.concatenate([np.fromfile(f, kind) for f in sorted(glob.glob(os.path.join(out, "ids", "*.ds")))])
    return ids


make = {"datasets": with_datasets, "datatrove": with_datatrove}[kind]
try:
    names = {"datasets": ["datasets", "tokenizers"], "datatrove": ["datatrove", "tokenizers"]}[kind]
    about = {n: importlib.metadata.version(n) for n in names}
    __import__(kind)
    say(about)
    for line in sys.stdin:
        q = json.loads(line)
        try:
            shutil.rmtree(q["out"], ignore_errors=True)
            os.makedirs(q["out"])
            c, t = cpu(), time.perf_counter()
            ids = make(q["inputs"], q["out"], q["workers"])
            t, c = time.perf_counter() - t, cpu() - c
            v = ids()
            if kind == "datatrove" and q["workers"] > 1:
                c = 0  # its processes are nobody's children, so their time is not known
            say({"wall_s": t, "cpu_s": c, "tokens": len(v), "sum": int(v.astype(np.uint64).sum())})
        except Exception as e:  # whatever a foreign library fails with is its row's text
            say({"error": f"{type(e).__name__}: {e}"})
except Exception as e:
    say({"error": f"{type(e).__name__}: {e}"})
