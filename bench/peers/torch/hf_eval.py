"""Computes the validation loss of a checkpoint with transformers and compares it.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    refrain eval RUN --json > eval.json
    VENV/bin/python hf_eval.py RUN STORE [--ours eval.json] [--no-mask] [--rows N]

RUN is a run folder or a checkpoint, STORE the validation store. The checkpoint is loaded by
AutoModelForCausalLM.from_pretrained as it is. Rows come from pyarrow and from
docs/formats/stream.md by way of ../pyarrow_store/stream.py. The switches doc_mask, reset_positions, seq and eval.rows
are read from RUN/config.yaml; --no-mask computes the loss without the document mask, as a
reader who knows nothing of it would. Prints one line of JSON; exits with 1 when the
loss differs from the given one by more than 1e-4.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import torch
import yaml
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "pyarrow_store"))
from stream import Stream  # noqa: E402


def documents(store):
    man = json.loads((store / "manifest.json").read_text())
    docs = []
    for sh in man["shards"]:
        with ipc.open_file(pa.memory_map(str(store / sh["file"]))) as f:
            for k in range(f.num_record_batches):
                docs += [row.values.to_numpy().astype(np.int64) for row in f.get_batch(k)["tokens"]]
    return docs


def rows(docs, T, limit):
    """Inputs, targets and document starts of every validation row, in their order."""
    s = Stream([len(d) for d in docs], "fixed", 0, T, "pad")
    pi = s.pieces(0)
    flat = np.concatenate([docs[d] for d in pi])
    first = np.zeros(len(flat), bool)
    first[np.cumsum([0] + [len(docs[d]) for d in pi[:-1]])] = True
    at = {}
    pos = 0
    for d in pi:
        at[d] = pos
        pos += len(docs[d])
    for r, spans in enumerate(s.rows(0)):
        if limit and r >= limit:
            return
        lo = at[spans[0][0]] + spans[0][1]
        x, y, b = np.zeros(T, np.int64), np.full(T, -1, np.int64), np.zeros(T, bool)
        n, m = min(T, len(flat) - lo), min(T, len(flat) - lo - 1)
        x[:n], y[:m], b[:n] = flat[lo : lo + n], flat[lo + 1 : lo + 1 + m], first[lo : lo + n]
        yield x, y, b


def newest(run):
    if (run / "model.safetensors").exists():
        return run
    found = sorted((run / "ckpt").glob("step-*"))
    if not found:
        sys.exit(f"{run} has no checkpoint")
    return found[-1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("run", type=pathlib.Path)
    p.add_argument("store", type=pathlib.Path)
    p.add_argument("--ours", type=pathlib.Path)
    p.add_argument("--no-mask", action="store_true")
    p.add_argument("--rows", type=int, default=0)
    a = p.parse_args()
    ckpt = newest(a.run)
    folder = a.run if (a.run / "config.yaml").exists() else a.run.parent.parent
    cfg = yaml.safe_load((folder / "config.yaml").read_text())
    data, T = cfg["data"], cfg["data"]["seq"]
    mask, reset = data.get("doc_mask", True) and not a.no_mask, data.get("reset_positions", False)
    limit = a.rows or cfg.get("eval", {}).get("rows", 0)

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(ckpt, dtype=torch.float32, attn_implementation="eager").eval()
    total, count, batch = 0.0, 0, []

    def flush():
        nonlocal total, count
        x, y, b = (torch.from_numpy(np.stack(z)) for z in zip(*batch))
        B, t = len(batch), torch.arange(T)
        seg = torch.where(b, t.expand(B, T), 0).cummax(1).values
        ok = (t[:, None] >= t[None, :]).expand(B, T, T)
        if mask:
            ok = ok & (seg[:, :, None] == seg[:, None, :])
        bias = torch.zeros(B, 1, T, T).masked_fill(~ok[:, None], torch.finfo(torch.float32).min)
        pos = t.expand(B, T) - seg if reset else t.expand(B, T)
        with torch.no_grad():
            z = model(input_ids=x, attention_mask=bias, position_ids=pos, use_cache=False).logits
        total += torch.nn.functional.cross_entropy(z.double().reshape(B * T, -1), y.reshape(-1), ignore_index=-1, reduction="sum").item()
        count += int((y >= 0).sum())
        batch.clear()

    n = 0
    for r in rows(documents(a.store), T, limit):
        batch.append(r)
        n += 1
        if len(batch) == 8:
            flush()
    if batch:
        flush()
    out = {"checkpoint": ckpt.name, "loss": total / count, "tokens": count, "rows": n, "doc_mask": mask, "reset_positions": reset}
    ok = True
    if a.ours:
        ours = json.loads(a.ours.read_text())
        out["ours"] = ours["loss"]
        out["difference"] = ours["loss"] - out["loss"]
        assert ours["tokens"] == count, f"{ours['tokens']} scored targets in one, {count} in the other"
        ok = abs(out["difference"]) <= 1e-4
    print(json.dumps(out))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
