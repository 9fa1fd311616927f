"""Writes the fixtures that the Go tests compare the model and the optimiser with.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python parity.py ../../../model/testdata/parity.safetensors ../../../train/testdata/parity.safetensors

The first file holds logits, loss and every gradient of one batch; the second the
loss and the gradient norm of ten AdamW steps with clipping, a schedule, and decay and
learning rate by role, and the weights after them. Everything is computed in
float64 by the plain PyTorch model below; where transformers can express a case, its
LlamaForCausalLM must agree before anything is written.

Weights, tokens, targets and document starts are not stored. Value i of the array
called NAME comes from

    x = fmix32(fnv1a32(NAME) + i * 0x9E3779B9)        (fmix32 of MurmurHash3)
    integer below n: x mod n;   real: u = (x >> 8) / 2^24 - 0.5

matrices are u, norm scales 1 + u/2 rounded to float32; token i of step k is
"tokens.k" mod V, its target "targets.k" mod V, masked where "masked.k" mod 7 is 0;
a document starts where "starts.k" mod 5 is 0.
"""

import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

STEPS = 10
B, T, V = 4, 10, 32
OPTIM = {
    "lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "clip": 0.5, "warmup": 3, "min_ratio": 0.1,
    "decay": {"embedding": 0.4, "head": 0.3, "tied": 0.2, "hidden": 0.1, "norm": 0.05},
    "lr_mul": {"embedding": 0.8, "head": 0.6, "tied": 1.2, "hidden": 1.0, "norm": 0.5},
}


def case(tie=False, kv=4, head_dim=4, mask=False, reset=False):
    return {
        "vocab": V, "layers": 2, "dim": 16, "heads": 4, "kv_heads": kv, "head_dim": head_dim, "ffn": 20,
        "theta": 10000.0, "eps": 1e-5, "tie": tie, "mask": mask, "reset": reset, "b": B, "t": T,
    }


CASES = {
    "tied": case(tie=True),
    "gqa": case(kv=2, head_dim=6),
    "mask": case(kv=2, mask=True),
    "mask_tied": case(tie=True, kv=1, mask=True),
    "mask_reset": case(kv=2, mask=True, reset=True),
    "reset": case(tie=True, reset=True),
}


def raw(name, n):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    x = (np.arange(n, dtype=np.uint64) * 0x9E3779B9 + h) & 0xFFFFFFFF
    for shift, mul in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ x >> np.uint64(shift)) * np.uint64(mul)) & 0xFFFFFFFF
    return x ^ x >> np.uint64(16)


def shapes(c):
    """Tensors by Hugging Face name, with shape and role."""
    d, a, k, f = c["dim"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"], c["ffn"]
    out = {"model.embed_tokens.weight": ((V, d), "tied" if c["tie"] else "embedding")}
    if not c["tie"]:
        out["lm_head.weight"] = ((V, d), "head")
    for i in range(c["layers"]):
        p = f"model.layers.{i}."
        for name, shape in (("q_proj", (a, d)), ("k_proj", (k, d)), ("v_proj", (k, d)), ("o_proj", (d, a))):
            out[f"{p}self_attn.{name}.weight"] = (shape, "hidden")
        for name, shape in (("gate_proj", (f, d)), ("up_proj", (f, d)), ("down_proj", (d, f))):
            out[f"{p}mlp.{name}.weight"] = (shape, "hidden")
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{p}{name}.weight"] = ((d,), "norm")
    out["model.norm.weight"] = ((d,), "norm")
    return out


def weights(c):
    w = {}
    for name, (shape, role) in shapes(c).items():
        u = (raw(name, math.prod(shape)) >> np.uint64(8)) / 2.0**24 - 0.5
        if role == "norm":
            u = (1 + u / 2).astype(np.float32)
        w[name] = torch.tensor(u.reshape(shape), dtype=torch.float64, requires_grad=True)
    return w


def batch(k):
    def ints(name, n):
        return torch.tensor((raw(f"{name}.{k}", B * T) % n).astype(np.int64)).reshape(B, T)

    targets = ints("targets", V).masked_fill(ints("masked", 7) == 0, -1)
    return ints("tokens", V), targets, ints("starts", 5) == 0


def rms(x, w, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def rope(x, pos, theta):
    half = x.shape[-1] // 2
    angle = pos[:, None, :, None] * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def documents(starts):
    """Position at which the document of every position starts."""
    t = torch.arange(T).expand(B, T)
    return torch.where(starts, t, 0).cummax(1).values


def allowed(c, starts):
    t = torch.arange(T)
    ok = (t[:, None] >= t[None, :]).expand(B, T, T)
    if c["mask"]:
        seg = documents(starts)
        ok = ok & (seg[:, :, None] == seg[:, None, :])
    return ok


def positions(c, starts):
    t = torch.arange(T).expand(B, T)
    return t - documents(starts) if c["reset"] else t


def logits(c, w, tokens, starts):
    h, kv, n = c["heads"], c["kv_heads"], c["head_dim"]
    pos, ok = positions(c, starts).double(), allowed(c, starts)
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["layers"]):
        g = lambda s: w[f"model.layers.{i}.{s}.weight"]
        y = rms(x, g("input_layernorm"), c["eps"])
        split = lambda s, m: (y @ g(f"self_attn.{s}").T).view(B, T, m, n).transpose(1, 2)
        q, k, v = rope(split("q_proj", h), pos, c["theta"]), rope(split("k_proj", kv), pos, c["theta"]), split("v_proj", kv)
        k, v = k.repeat_interleave(h // kv, 1), v.repeat_interleave(h // kv, 1)
        s = (q @ k.transpose(2, 3) / math.sqrt(n)).masked_fill(~ok[:, None], -math.inf)
        x = x + (s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, h * n) @ g("self_attn.o_proj").T
        y = rms(x, g("post_attention_layernorm"), c["eps"])
        x = x + (F.silu(y @ g("mlp.gate_proj").T) * (y @ g("mlp.up_proj").T)) @ g("mlp.down_proj").T
    head = w["model.embed_tokens.weight" if c["tie"] else "lm_head.weight"]
    return rms(x, w["model.norm.weight"], c["eps"]) @ head.T


def loss_of(z, targets):
    return F.cross_entropy(z.reshape(-1, V), targets.reshape(-1), ignore_index=-1)


def against_transformers(name, c, w, z, tokens, starts):
    from transformers import LlamaConfig, LlamaForCausalLM

    cfg = LlamaConfig(
        vocab_size=V, hidden_size=c["dim"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"], rms_norm_eps=c["eps"],
        rope_parameters={"rope_type": "default", "rope_theta": c["theta"]}, max_position_embeddings=64,
        tie_word_embeddings=c["tie"], attn_implementation="eager", pad_token_id=None, bos_token_id=None, eos_token_id=None,
    )
    m = LlamaForCausalLM(cfg).double().eval()
    missing, extra = m.load_state_dict({k: v.detach() for k, v in w.items()}, strict=False)
    assert not extra and (missing == ["lm_head.weight"] if c["tie"] else not missing), (missing, extra)
    m.tie_weights()
    bias = torch.zeros(B, 1, T, T, dtype=torch.float64).masked_fill(~allowed(c, starts)[:, None], torch.finfo(torch.float64).min)
    with torch.no_grad():
        peer = m(input_ids=tokens, attention_mask=bias, position_ids=positions(c, starts), use_cache=False).logits
    worst = (peer - z.detach()).abs().max().item() / z.detach().std().item()
    print(f"{name}: logits of transformers differ by at most {worst:.1e} of their spread")
    assert worst < 1e-5, name  # its rotary tables are float32


def rate(k):
    o = OPTIM
    if k <= o["warmup"]:
        return o["lr"] * k / o["warmup"]
    x = (k - o["warmup"]) / (STEPS - o["warmup"] + 1)
    return o["lr"] * (o["min_ratio"] + (1 - o["min_ratio"]) * 0.5 * (1 + math.cos(math.pi * x)))


def ten_steps(c):
    w = weights(c)
    o = OPTIM
    groups = [{"params": [w[n]], "weight_decay": o["decay"][role], "mul": o["lr_mul"][role]} for n, (_, role) in shapes(c).items()]
    opt = torch.optim.AdamW(groups, lr=1.0, betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms = [], []
    for k in range(1, STEPS + 1):
        tokens, targets, starts = batch(k)
        opt.zero_grad()
        loss = loss_of(logits(c, w, tokens, starts), targets)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), o["clip"]).item())
        for g in opt.param_groups:
            g["lr"] = rate(k) * g["mul"]
        opt.step()
        losses.append(loss.item())
    return losses, norms, w


def main():
    torch.set_num_threads(1)
    model, train = {}, {}
    f32 = lambda x: np.ascontiguousarray(np.asarray(x, dtype=np.float64).astype(np.float32))
    for name, c in CASES.items():
        w = weights(c)
        tokens, targets, starts = batch(0)
        z = logits(c, w, tokens, starts)
        against_transformers(name, c, w, z, tokens, starts)
        loss = loss_of(z, targets)
        loss.backward()
        model[f"{name}.logits"], model[f"{name}.loss"] = f32(z.detach()), f32([loss.item()])
        for p in w:
            model[f"{name}.grad.{p}"] = f32(w[p].grad)
        losses, norms, w = ten_steps(c)
        assert min(norms) > OPTIM["clip"], "clipping is not exercised"
        train[f"{name}.losses"], train[f"{name}.norms"] = f32(losses), f32(norms)
        for p in w:
            train[f"{name}.weight.{p}"] = f32(w[p].detach())
        print(f"{name}: loss {loss.item():.6f}; ten steps {losses[0]:.4f} to {losses[-1]:.4f}, norms {min(norms):.2f} to {max(norms):.2f}")
    import transformers

    meta = {"cases": json.dumps(CASES), "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    save_file(model, sys.argv[1], metadata=meta)
    save_file(train, sys.argv[2], metadata=meta | {"optim": json.dumps(OPTIM), "steps": str(STEPS)})


if __name__ == "__main__":
    main()
