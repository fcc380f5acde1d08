"""The core where what macOS and Windows lack is hidden: numbers of a run that was resumed, and its status here."""

import json
import os
import sys

for name in ("fcntl", "resource", "termios", "pwd", "grp", "triton"):
    sys.modules[name] = None  # type: ignore[assignment]
for name in ("getuid", "geteuid", "sched_getaffinity", "statvfs", "fork", "sysconf", "sysconf_names"):
    delattr(os, name)

import denizen as dz  # noqa: E402
from denizen.perf import environment  # noqa: E402
from denizen.space.generators import erdos_renyi  # noqa: E402
from denizen.zoo.sir import sir  # noqa: E402

model = sir(erdos_renyi(300, mean_degree=8, seed=1))
dz.simulate(model, steps=6, replicates=2, device="cpu", out=sys.argv[1], compile=False)
run = dz.run.resume(sys.argv[1], model, steps=10, device="cpu")
environment()
manifest = os.path.join(sys.argv[1], "manifest.json")
with open(manifest) as file:
    told = json.load(file)
with open(manifest, "w") as file:
    json.dump({**told, "status": "running"}, file)  # as a kill leaves it, and as it stands while steps are taken
print(json.dumps([run["cases"].tolist(), dz.run.load(sys.argv[1]).status]))
