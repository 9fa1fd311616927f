"""Megatron-core: GPTDataset over one long document, an epoch's samples at a time,
read through torch's DataLoader as its training loop does."""
import os

import megatron.core
import numpy as np
import torch
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from megatron.core.datasets.utils import Split
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler


class Tokenizer:
    vocab_size, eod, pad, unique_identifiers = 1 << 16, 1 << 16, -1, {"kind": "none"}


class Loader:
    versions = {"megatron-core": megatron.core.__version__, "torch": torch.__version__}
    settings = [f"workers={w}" for w in (0, 1, 2)]

    def __init__(self, spec):
        self.B, self.W, self.T, self.made = spec["B"], spec["W"], spec["T"], {}
        self.prefix = os.path.join(spec["dir"], "text")
        ids = np.fromfile(spec["stream"], np.uint16)
        b = IndexedDatasetBuilder(self.prefix + ".bin", dtype=np.uint16)
        b.add_document(ids, [len(ids)])
        b.finalize(self.prefix + ".idx")

    def data(self, seed):
        if seed not in self.made:
            c = GPTDatasetConfig(random_seed=seed, sequence_length=self.T, split="1", tokenizer=Tokenizer(), create_attention_mask=False,
                                 reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False)
            low = GPTDataset.build_low_level_dataset(self.prefix, c)
            self.made[seed] = GPTDataset(low, self.prefix, np.arange(1, dtype=np.int32), self.W, Split.train, c)
        return self.made[seed]

    def batches(self, setting, mode, epoch):
        ds = self.data(1 + epoch if mode == "reshuffle" else 1)
        s = BatchSampler(SequentialSampler(range(self.W)), self.B, drop_last=True)
        for b in DataLoader(ds, batch_sampler=s, num_workers=int(setting[-1])):
            yield torch.cat([b["tokens"], b["labels"][:, -1:]], 1).numpy()
