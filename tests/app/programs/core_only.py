"""The main paths with the core alone: whatever an extra brings is not to be found in this process."""

import importlib.util
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path

HIDDEN = {"cmaes", "gymnasium", "imageio_ffmpeg", "matplotlib", "numba", "optuna", "pandas", "pettingzoo", "polars"}
HIDDEN |= {"pyarrow", "pygame", "pynvml", "sbi", "scipy", "starlette", "statsmodels", "tensorboard", "uvicorn", "wandb"}
HIDDEN |= {"xarray", "zarr"}


class Core(PathFinder):
    """Finds modules as ever, but for those."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.partition(".")[0] in HIDDEN else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Core
assert not any(importlib.util.find_spec(name) for name in HIDDEN)

import denizen as dz  # noqa: E402
from denizen import app  # noqa: E402
from denizen.errors import MissingExtra  # noqa: E402
from denizen.space.generators import erdos_renyi  # noqa: E402
from denizen.zoo.sir import sir  # noqa: E402

model = sir(erdos_renyi(200, mean_degree=8, seed=1))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    run = dz.simulate(model, 20, replicates=3, out="r", device="cpu")
    dz.simulate(model, 20, replicates=3, device="cpu")
assert [str(one.message).partition(",")[0] for one in told] == ["numba is not installed"], [str(t) for t in told]
assert dz.run.load("r")["cases"].equal(run["cases"])
assert dz.run.resume("r", model, 5)["cases"].equal(dz.simulate(model, 25, replicates=3, device="cpu")["cases"])
str(run.summary())
for table in (run.to_polars, run.plot):
    try:
        table()
    except MissingExtra as error:
        assert "pip install" in str(error)  # noqa: PT017

for word in sys.argv[1:]:  # commands
    sys.argv = ["denizen", *word.split()]
    try:
        app.main()
    except SystemExit as stop:
        assert not stop.code, word  # noqa: PT017
assert Path("h/report.html").stat().st_size > 100_000
assert not HIDDEN & {name.partition(".")[0] for name in sys.modules}
