"""Peer for bench gemm: numpy.matmul (OpenBLAS). One JSON line in, one out."""
import json
import sys
import time

import numpy as np
import threadpoolctl


def main():
    rng = np.random.default_rng(1)
    info = [{k: i.get(k) for k in ("internal_api", "version", "architecture", "num_threads")} for i in threadpoolctl.threadpool_info()]
    print(json.dumps({"numpy": np.__version__, "blas": info}), flush=True)
    cache = {}
    for line in sys.stdin:
        q = json.loads(line)
        m, n, k, form = q["m"], q["n"], q["k"], q["form"]
        key = (m, n, k, form)
        if key not in cache:
            cache.clear()
            a = rng.random((k, m) if form == "TN" else (m, k), dtype=np.float32) - 0.5
            b = rng.random((n, k) if form == "NT" else (k, n), dtype=np.float32) - 0.5
            cache[key] = (a.T if form == "TN" else a, b.T if form == "NT" else b, np.empty((m, n), np.float32))
        a, b, out = cache[key]
        best = 0.0
        with threadpoolctl.threadpool_limits(q["threads"]):
            np.matmul(a, b, out=out)
            for _ in range(q["rounds"]):
                t = time.perf_counter()
                np.matmul(a, b, out=out)
                best = max(best, 2.0 * m * n * k / (time.perf_counter() - t) / 1e9)
        print(json.dumps({"gflops": best}), flush=True)


main()
