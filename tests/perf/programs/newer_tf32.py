"""Sets torch's newer switch for TF32, which makes the older one unreadable."""

import torch

import denizen as dz
from denizen.perf import Variant
from denizen.perf._doctor.ablation import tensor_cores
from denizen.perf.watch._tf32 import takes_tf32

matmul = torch.backends.cuda.matmul
assert not takes_tf32(matmul)
matmul.fp32_precision = "ieee"
with tensor_cores():
    assert takes_tf32(matmul)
assert not takes_tf32(matmul)
with tensor_cores():  # a step that sets the precision itself, for the CPU too
    torch.set_float32_matmul_precision("high")
assert torch.get_float32_matmul_precision() == "highest"
matmul.fp32_precision = "tf32"
assert takes_tf32(matmul)
a = torch.ones(600, 600)
assert dz.doctor(lambda: a @ a).findings is not None
assert dz.doctor(make=lambda device: lambda: a.to(device) @ a.to(device)).findings is not None
with Variant("plain", tf32=False).active(torch.device("cpu")):
    assert matmul.fp32_precision == "ieee"
assert matmul.fp32_precision == "tf32"
