"""Peer for bench loader: a vectorised numpy gather of permuted rows from a
uint16 or uint32 memmap into int32. One JSON line in, one out."""
import json
import sys
import time

import numpy as np

path, dtype, T, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = np.memmap(path, dtype=dtype, mode="r")
W = (len(data) - 1) // T
rng = np.random.default_rng(1)
offs = np.arange(T + 1)
x = np.empty((16, T + 1), np.int32)
for i in range(0, W - 16, 16):  # page in
    x[:] = data[(np.arange(i, i + 16) * T)[:, None] + offs]
print(json.dumps({"numpy": np.__version__, "windows": W}), flush=True)
for line in sys.stdin:
    perm = rng.permutation(W)
    done = 0
    t = time.process_time()
    while done < rows:
        idx = perm[done % (W - 16):][:16] * T
        x[:len(idx)] = data[idx[:, None] + offs]
        done += len(idx)
    s = time.process_time() - t
    print(json.dumps({"tok_per_cpu_s": done * T / s}), flush=True)
