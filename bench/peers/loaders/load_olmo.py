"""OLMo-core: NumpyFSLDataset over rows of T+1 tokens end to end, read through its
NumpyFSLDataLoader."""
import importlib.metadata

import numpy as np
import torch
from olmo_core.data import DataCollator, NumpyFSLDataLoader, NumpyFSLDataset


class Loader:
    versions = {"ai2-olmo-core": importlib.metadata.version("ai2-olmo-core"), "torch": torch.__version__}
    settings = [f"workers={w},threads={t}" for w, t in ((0, 0), (0, 2), (1, 0), (2, 0))]

    def __init__(self, spec):
        self.B, self.width, self.dir = spec["B"], spec["T"] + 1, spec["dir"]
        # It has no way to say that there is no padding and no end; ids of neither kind are used.
        self.ds = NumpyFSLDataset(spec["rows"], sequence_length=self.width, pad_token_id=0, eos_token_id=1 << 17, vocab_size=1 << 16,
                                  dtype=np.uint16, include_instance_metadata=False)
        self.ds.work_dir = self.dir
        self.ds.prepare()

    def batches(self, setting, mode, epoch):
        w, t = (int(x.split("=")[1]) for x in setting.split(","))
        it = NumpyFSLDataLoader(self.ds, collator=DataCollator(pad_token_id=0), global_batch_size=self.B * self.width, work_dir=self.dir,
                                seed=1, num_workers=w, num_threads=t)
        it.reshuffle(1 + epoch if mode == "reshuffle" else 1)
        for b in it:
            yield b["input_ids"].numpy()
