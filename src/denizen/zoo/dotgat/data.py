"""The data of a training: series drawn once, split by process, targets computed once."""

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import pad

from denizen.errors import InputError
from denizen.nn import (
    BlockMixing,
    NonlinearTarget,
    RandomMixing,
    Task,
    draw_series,
    draw_unstructured,
    examples,
    sense_columns,
    sense_entries,
    split_processes,
    task,
)
from denizen.zoo.dotgat.config import KERNELS, Settings

SPLITS = ("training", "validation", "test")
MOST_EVALUATED = 1024  # series of a split that a validation looks at: always the same ones


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """What is looked at and what is asked.

    Inputs end with a column of ones that every agent sees: the network's first norm keeps only the direction of what
    an agent sees, and beside a constant the direction tells the scale.

    Attributes:
        task: what is asked.
        sensing: float32 `[agents, columns or entries, and one]`.
        known: for completion, bool `[entries]`; None otherwise.
        inputs, targets: by split.
        facts: of the series, for the manifest.
    """

    task: Task
    sensing: Tensor
    known: Tensor | None
    inputs: dict[str, Tensor]
    targets: dict[str, Tensor]
    facts: dict[str, object]


def draw(settings: Settings) -> Data:
    """All data of a training, on the host; a pure function of the settings."""
    asked = task(settings.task)
    sizes = {"rank": settings.rank, "seed": settings.seed}
    if asked.name == "lrmc":
        series = draw_unstructured(settings.processes, settings.times, settings.features, **sizes)
    else:
        series = draw_series(
            settings.processes,
            settings.times,
            settings.features,
            realisations=settings.realisations,
            kernel=KERNELS[settings.kernel],
            mixing=BlockMixing() if settings.mixing == "block" else RandomMixing(),
            **sizes,
        )
    rows = dict(zip(SPLITS, split_processes(series.process, seed=settings.seed), strict=True))
    if len(rows["training"]) < settings.batch:
        raise InputError(
            f"batch={settings.batch}: only {len(rows['training'])} series to train on; raise processes= or lower batch="
        )
    target = None
    if asked.name == "nonlin_function":
        target = NonlinearTarget.fit(series.values[rows["training"]], settings.seed)
    pairs = {name: examples(asked, series.values[at], target) for name, at in rows.items()}
    sensing, known, sensed = _sensing(settings, asked)
    seen = {name: pair[0].flatten(1) if asked.name == "lrmc" else pair[0] for name, pair in pairs.items()}
    inputs = {name: pad(x, (0, 1), value=1.0) for name, x in seen.items()}
    facts = {**series.facts, "redrawn": series.redrawn, **{name: len(at) for name, at in rows.items()}, **sensed}
    if target is not None:
        facts |= {"mean": target.mean, "std": target.std, "gain": target.gain, "weights": target.weights.tolist()}
    return Data(
        asked, pad(sensing, (0, 1), value=1.0), known, inputs, {name: pair[1] for name, pair in pairs.items()}, facts
    )


def _sensing(settings: Settings, asked: Task) -> tuple[Tensor, Tensor | None, dict[str, object]]:
    """What each agent sees, which entries are known, and facts about both."""
    if asked.name != "lrmc":
        seen = sense_columns(settings.agents, settings.features, settings.share, settings.seed)
        return seen, None, {"columns_seen": int(seen[0].sum()), "coverage": float(seen.amax(0).mean())}
    found = sense_entries(
        settings.agents,
        settings.times,
        settings.features,
        density=settings.density,
        share=settings.share,
        rank=settings.rank,
        seed=settings.seed,
    )
    if found.known.all():
        raise InputError(f"density={settings.density}: all entries are known, none is left to complete; lower it")
    facts: dict[str, object] = {"coverage": found.coverage, "clipped": found.clipped}
    if settings.agents > 1:
        facts |= {"overlap_mean": found.overlap_mean, "overlap_variance": found.overlap_variance}
    return found.seen.flatten(1).float(), found.known.flatten(), facts


def baselines(data: Data) -> dict[str, float]:
    """Scores on the test split of simple predictors without attention, by name.

    Mean squared error for values, accuracy for classes. "Alone" is what single agents reach on average from the columns
    that they see: the last value where they see it and elsewhere the mean of the training split, or of the columns that
    they see; least squares on their current row, or on the one before, of which nonlin_function is made; the largest of
    the columns that they see. Without "alone", all columns are seen.
    """
    if data.task.name == "lrmc":
        assert data.known is not None
        known, wanted = data.known, data.targets["test"]
        mean = (wanted * known).sum(1, keepdim=True) / known.sum()
        return {"mean of known entries": float((mean - wanted).square()[:, ~known].mean())}
    every = data.task.every_time
    looked = data.inputs
    if data.task.name == "nonlin_function":  # made of the row before, which memory has; nothing is before the first
        looked = {name: pad(x[:, :-1], (0, 0, 1, 0)) for name, x in looked.items()}
    now = {name: (x if every else x[:, -1:]).flatten(0, 1) for name, x in looked.items()}
    wanted = {name: (y if every else y[:, None]).flatten(0, 1) for name, y in data.targets.items()}
    columns = data.sensing[:, :-1] > 0  # without the ones
    if data.task.classes:
        largest = [now["test"][:, :-1].masked_fill(~seen, -torch.inf).argmax(-1) for seen in columns]
        common = wanted["training"].mode().values
        return {
            "last value": float((now["test"][:, :-1].argmax(-1) == wanted["test"]).float().mean()),
            "last value, alone": float(torch.stack([(x == wanted["test"]).float().mean() for x in largest]).mean()),
            "most frequent class": float((wanted["test"] == common).float().mean()),
        }
    mean = wanted["training"].mean(0)
    found = {"mean": float((mean - wanted["test"]).square().mean())}
    if data.task.name != "nonlin_function":
        last = now["test"][:, :-1]
        found["last value"] = float((last - wanted["test"]).square().mean())
        for name, others in (
            ("last value, alone", [mean] * len(columns)),
            ("mean of seen columns, alone", [last[:, seen].mean(1, keepdim=True) for seen in columns]),
        ):
            alone = [torch.where(seen, last, other) for seen, other in zip(columns, others, strict=True)]
            found[name] = float(torch.stack([(x - wanted["test"]).square().mean() for x in alone]).mean())
    found["linear"] = _least_squares(now, wanted, torch.ones_like(data.sensing[0]))
    errors = [_least_squares(now, wanted, seen) for seen in data.sensing]
    return {**found, "linear, alone": sum(errors) / len(errors)}


def _least_squares(now: dict[str, Tensor], wanted: dict[str, Tensor], seen: Tensor) -> float:
    """Squared error on the test split of a linear map of the columns that are seen, with an intercept."""
    x = {name: rows[:, seen > 0].double() for name, rows in now.items()}
    weights = torch.linalg.lstsq(x["training"], wanted["training"].double()).solution
    return float((x["test"] @ weights - wanted["test"]).square().mean())
