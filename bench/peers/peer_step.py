"""Peer for bench step: the same model in PyTorch, torch.compile, float32 (or
bf16 autocast), fused AdamW, clipping. One JSON line in, one out."""
import json
import sys
import time

import torch
import torch.nn.functional as F

cfg = json.loads(sys.argv[1])
V, D, L, H, KV, FF, T, B = (cfg[k] for k in ("vocab", "dim", "layers", "heads", "kv_heads", "ffn", "t", "b"))
C = D // H
torch.set_num_threads(cfg["threads"])
torch.manual_seed(1)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = torch.nn.RMSNorm(D, eps=1e-5), torch.nn.RMSNorm(D, eps=1e-5)
        self.qkv = torch.nn.Linear(D, (H + 2 * KV) * C, bias=False)
        self.o = torch.nn.Linear(H * C, D, bias=False)
        self.gu = torch.nn.Linear(D, 2 * FF, bias=False)
        self.down = torch.nn.Linear(FF, D, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.n1(x)).split([H * C, KV * C, KV * C], -1)
        q, k, v = (t.view(B, T, -1, C).transpose(1, 2) for t in (q, k, v))

        def rope(t):
            a, b = t.chunk(2, -1)
            return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True, enable_gqa=KV != H)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, H * C))
        g, u = self.gu(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(V, D)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(L))
        self.norm = torch.nn.RMSNorm(D, eps=1e-5)
        self.head = torch.nn.Linear(D, V, bias=False)
        if cfg["tie"]:
            self.head.weight = self.emb.weight
        ang = torch.outer(torch.arange(T).float(), 10000.0 ** (-2 * torch.arange(C // 2) / C))
        self.register_buffer("cos", ang.cos())
        self.register_buffer("sin", ang.sin())

    def forward(self, x, y):
        h = self.emb(x)
        for b in self.blocks:
            h = b(h, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(h)).view(-1, V).float(), y.view(-1))


model = Model()
for p in model.parameters():
    if p.dim() == 2:
        torch.nn.init.normal_(p, std=0.02)
params = list(model.parameters())
opt = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model) if cfg["compile"] else model
x = torch.randint(0, V, (B, T))
y = torch.randint(0, V, (B, T))


def step():
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cfg["bf16"]):
        loss = run(x, y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
    return loss.item()


for _ in range(3):
    step()
print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "params": sum(p.numel() for p in params)}), flush=True)
for line in sys.stdin:
    n = json.loads(line)["steps"]
    times = []
    for _ in range(n):
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    times.sort()
    print(json.dumps({"median_s": times[len(times) // 2], "best_s": times[0]}), flush=True)
