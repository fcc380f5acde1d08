"""Draw the pictures of the gallery, one for each model and world of the zoo: `make gallery`.

Models are run on a town and drawn as curves, or in three moments where they draw themselves. In worlds a policy that
has learnt nothing acts, as `denizen watch` draws it. The pictures are the same each time with the same versions of
torch and matplotlib.
"""

import io
import sys
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import denizen as dz
from denizen import _tree
from denizen._figures import BANDS, colour, figure, name_ends, plain_axis, titled
from denizen.app._build import build
from denizen.app._settings import arguments_of, contacts_of
from denizen.app._watch import as_images
from denizen.population import synthetic
from denizen.rl import play
from denizen.space.generators import erdos_renyi
from denizen.zoo import ModelEntry, WorldEntry, entries
from denizen.zoo.boids import boids
from denizen.zoo.circles import circles

HERE = Path(__file__).parent / "gallery"
PEOPLE, REPLICATES = 5_000, 16
SHOWN = {  # of a model whose series differ much in size
    "covid": ("daily_infected", "daily_deaths"),
    "wealth": ("gini", "poor"),
    "hiv": ("infected", "in_steady"),
    "wolf_sheep": ("sheep", "wolves", "grass"),
    "sir_vaccination": ("infected", "recovered", "vaccinated"),
    "sis": ("infected",),
    "sirs": ("infected", "recovered"),
}
COUNTED = {"wealth": "Gini index, share", "hiv": "people", "wolf_sheep": "animals, cells"}  # on the y axis
MOMENTS = {
    "acrobot": (0, 20, 40),
    "asterix": (6, 12, 18),
    "foraging": (0, 30, 60),
    "forest_fire": (1, 80, 300),
    "lander": (0, 30, 55),
    "life": (5, 50, 300),
    "mountaincar": (0, 15, 30),
    "mountaincar_continuous": (0, 15, 30),
    "opinions": (1, 6, 60),
    "pendulum": (0, 12, 24),
    "predator_prey": (0, 10, 20),
    "seaquest": (10, 35, 60),
    "traffic": (1, 20, 100),
    "voter": (3, 30, 200),
}
RINGS: dict[str, Any] = {"dims": 2, "density": 0.5, "push": 0.5}  # in a square and sooner than by default
FLOCKS = {"match": 0.5, "cohere": 0.02, "separate": 0.3, "separation": 5.0, "radius": 10.0}  # by default: strings
OTHERS: dict[str, Any] = {"boids": boids(300, **FLOCKS), "circles": circles(400, **RINGS)}  # other than by default
TRACED = {"traffic": (60, 120)}  # first and last step of a model whose first row is drawn over time
FILMS: dict[str, tuple[Any, int]] = {  # model, steps from frame to frame
    "boids": (OTHERS["boids"], 3),
    "circles": (OTHERS["circles"], 2),
}
FRAMES = 50
FIRST_STEPS = (0, 4, 8)  # of other worlds: a life without a skill is short
SIZE = (480, 240)  # pixels of a picture
MOST = 25_000  # bytes


def of_model(name: str, entry: ModelEntry) -> Image.Image:
    """Curves of a run, with the band of its replicates; of a model that draws itself, three moments of a run."""
    if name in TRACED:
        return over_time(entry, *TRACED[name])
    if hasattr(entry.model, "draw"):
        return of_space(name, entry)
    people: Any = synthetic("astoria", size=PEOPLE) if entry.population else erdos_renyi(PEOPLE, mean_degree=10, seed=0)
    given = [people] if contacts_of(arguments_of(entry.build)) else []
    run = dz.simulate(entry.build(*given), entry.steps, replicates=REPLICATES, device="cpu", compile=False)
    drawn = figure(SIZE[0] / 100, SIZE[1] / 100)
    axis, ends = drawn.subplots(), []
    steps = range(1, entry.steps + 1)
    for number, series in enumerate(SHOWN.get(name, tuple(s for s in run.series_names if s != "cases"))):
        values, shade = run[series].double(), colour(number)
        middle = values.quantile(0.5, dim=0)
        low, high = (values.quantile(share, dim=0) for share in BANDS[0][:2])
        axis.fill_between(steps, low, high, color=shade, alpha=BANDS[0][2], linewidth=0)
        axis.plot(steps, middle, color=shade)
        ends.append((series, float(middle[-1]), shade))
    plain_axis(axis)
    titled(axis, "", entry.model.time_unit, COUNTED.get(name, "people"))
    name_ends(axis, ends)
    file = io.BytesIO()
    drawn.savefig(file, format="png", dpi=100)
    return Image.open(file).convert("RGB")


def of_space(name: str, entry: ModelEntry) -> Image.Image:
    """Three moments of a model that draws itself, side by side."""
    model: Any = OTHERS.get(name) or entry.build()
    moments = MOMENTS.get(name, (1, max(2, entry.steps // 8), entry.steps))
    run: Any = None
    pictures = []
    for moment in moments:
        run = dz.simulate(model, moment, device="cpu", compile=False) if run is None else run.extend(moment - run.steps)
        pictures.append(drawn_state(run))
    return strip_of(as_images(pictures))


def over_time(entry: ModelEntry, first: int, last: int) -> Image.Image:
    """The first row of a model's picture in one step after the other, from the top down."""
    run = dz.simulate(entry.build(), first, device="cpu", compile=False)
    rows: list[torch.Tensor] = []
    for _ in range(first, last):
        picture = drawn_state(run)
        rows.append(picture[: SIZE[1] // 2 // (last - first)])
        run.extend(1)
    return as_images([torch.cat(rows)])[0].resize(SIZE, Image.Resampling.NEAREST)


def drawn_state(run: dz.run.Run) -> torch.Tensor:
    """The picture that a model makes of the first replicate."""
    model: Any = run.model
    return model.draw(_tree.map_tensors(lambda tensor: tensor[0] if tensor.dim() else tensor, run.state))


def film(name: str) -> None:
    """A run of a model that draws itself, as a short film beside the pages."""
    model, every = FILMS[name]
    run, pictures = dz.simulate(model, 1, device="cpu", compile=False), []
    for _ in range(FRAMES):
        pictures.append(drawn_state(run))
        run.extend(every)
    first, *rest = [image.quantize(8) for image in as_images(pictures)]
    first.save(HERE.parent / f"{name}.gif", save_all=True, append_images=rest, duration=80, loop=0, optimize=True)


def of_world(name: str, entry: WorldEntry) -> Image.Image:
    """Three moments of a life side by side; of a world that draws itself as text, one."""
    settings = {"world_name": name, "algo": "ppo", "policy_kind": entry.policy, "policy": dict(entry.policy_options)}
    made = build({**settings, "steps": None, "set": {}, "world": {}, "validation": {}}, 0)
    moments = MOMENTS.get(name, FIRST_STEPS)
    pictures = [picture for picture, _ in play(made.env, made.policy, moments[-1])]
    if not hasattr(pictures[0], "shape"):
        text = as_images(pictures[-1:])[0]
        return fitted(text, (SIZE[0], min(SIZE[1], text.height)))
    return strip_of(as_images([pictures[moment] for moment in moments]))


def strip_of(images: list[Image.Image]) -> Image.Image:
    """Three pictures side by side."""
    side = (SIZE[0] // 3 - 4, SIZE[1])
    strip = Image.new("RGB", (SIZE[0], side[0]), "white")
    for place, one in enumerate(images):
        strip.paste(fitted(one, (side[0], side[0])), (place * (side[0] + 6), 0))
    return strip


def fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A picture as large as fits, in the middle of a white one."""
    image.thumbnail(size)
    made = Image.new("RGB", size, "white")
    made.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return made


def main(names: list[str]) -> None:
    """Draw those that are named; all, where none is."""
    torch.set_num_threads(1)
    every: dict[str, ModelEntry | WorldEntry] = {**entries(ModelEntry), **entries(WorldEntry)}
    HERE.mkdir(exist_ok=True)
    for name in names or every:
        entry = every[name]
        made = of_model(name, entry) if isinstance(entry, ModelEntry) else of_world(name, entry)
        path = HERE / f"{name}.png"
        made.quantize(64).save(path, optimize=True)
        if path.stat().st_size > MOST:
            sys.exit(f"{path}: {path.stat().st_size:,} bytes, expected at most {MOST:,}")
        print(f"{path}: {path.stat().st_size:,} bytes")
        if name in FILMS:
            film(name)


if __name__ == "__main__":
    main(sys.argv[1:])
