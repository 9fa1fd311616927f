"""Peer for bench gemm: numpy.matmul (OpenBLAS) for f32, torch.mm for bf16. The
precision is the argument. One JSON line in, one out."""
import json
import sys
import time


def best(f, q):
    """The best GFLOP/s of q["rounds"] calls after one that does not count."""
    f()
    top = 0.0
    for _ in range(q["rounds"]):
        t = time.perf_counter()
        f()
        top = max(top, 2.0 * q["m"] * q["n"] * q["k"] / (time.perf_counter() - t) / 1e9)
    return top


def shapes(q):
    m, n, k, form = q["m"], q["n"], q["k"], q["form"]
    return (k, m) if form == "TN" else (m, k), (n, k) if form == "NT" else (k, n)


def f32():
    import numpy as np
    import threadpoolctl

    rng = np.random.default_rng(1)
    info = [{k: i.get(k) for k in ("internal_api", "version", "architecture", "num_threads")} for i in threadpoolctl.threadpool_info()]

    def prepare(q):
        a, b = (rng.random(s, dtype=np.float32) - 0.5 for s in shapes(q))
        a, b = a.T if q["form"] == "TN" else a, b.T if q["form"] == "NT" else b
        out = np.empty((q["m"], q["n"]), np.float32)
        return lambda: np.matmul(a, b, out=out)

    def measure(f, q):
        with threadpoolctl.threadpool_limits(q["threads"]):
            return best(f, q)

    return {"numpy": np.__version__, "blas": info}, prepare, measure


def bf16():
    import torch

    torch.manual_seed(1)

    def prepare(q):
        a, b = (torch.rand(s) - 0.5 for s in shapes(q))
        half_a, half_b = a.bfloat16(), b.bfloat16()
        x, y = half_a.t() if q["form"] == "TN" else half_a, half_b.t() if q["form"] == "NT" else half_b
        half_out = torch.empty(q["m"], q["n"], dtype=torch.bfloat16)
        if q["operands"] == "bf16":
            return lambda: torch.mm(x, y, out=half_out)
        out = torch.empty(q["m"], q["n"])

        def converting():
            half_a.copy_(a)
            half_b.copy_(b)
            torch.mm(x, y, out=half_out)
            out.copy_(half_out)

        return converting

    def measure(f, q):
        torch.set_num_threads(q["threads"])
        return best(f, q)

    return {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "onednn": torch.backends.mkldnn.is_available()}, prepare, measure


def main():
    about, prepare, measure = {"f32": f32, "bf16": bf16}[sys.argv[1] if len(sys.argv) > 1 else "f32"]()
    print(json.dumps(about), flush=True)
    key, f = None, None
    for line in sys.stdin:
        q = json.loads(line)
        want = (q["m"], q["n"], q["k"], q["form"], q.get("operands", "f32"))
        if key != want:
            f = None  # free the old operands first
            key, f = want, prepare(q)
        print(json.dumps({"gflops": measure(f, q)}), flush=True)


main()
