"""Pictures of a training: loss curves, attention maps, the learnt social graph."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from denizen.errors import need
from denizen.nn import EdgeBias, SocialBias, attention_maps
from denizen.zoo.dotgat.data import Data
from denizen.zoo.dotgat.model import Answers

LOOKED_AT = 128  # series of the test split
# Okabe and Ito's, as in all pictures of denizen.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1c1f23", "#b3a800")


def _figure(wide: float, high: float) -> Any:
    need("matplotlib", "plot", "draw pictures")
    from matplotlib.figure import Figure

    return Figure(figsize=(wide, high), layout="constrained")


def curves(metrics: list[dict[str, Any]], results: dict[str, Any], classes: bool, to: Path) -> Path:
    """Losses by epoch, and the measure in which the baselines are given."""
    figure = _figure(12, 4)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.set_prop_cycle(color=COLOURS)
    epochs = [row["epoch"] for row in metrics]
    left.plot(epochs, [row["loss"] for row in metrics], label="training, every agent")
    checked = [row for row in metrics if "validation_loss" in row]
    left.plot([row["epoch"] for row in checked], [row["validation_loss"] for row in checked], label="validation")
    left.set(xlabel="epoch", ylabel="loss")
    left.legend(frameon=False)
    known = checked[-1] if checked else {}  # a training that diverged may have ended before a validation
    measures = [name for name in ("accuracy", "mse", "unknown_mse") if f"validation_{name}" in known]
    name = measures[0] if measures else "loss"
    right.plot(
        [row["epoch"] for row in checked], [row[f"validation_{name}"] for row in checked], label="agents together"
    )
    for number, (baseline, value) in enumerate(results.get("baselines", {}).items()):
        right.axhline(value, color=COLOURS[(number + 1) % len(COLOURS)], linestyle=":", label=baseline)
    right.set(xlabel="epoch", ylabel="accuracy by majority" if classes else "mean squared error")
    right.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(to, dpi=120)
    return to


def attention(model: Answers, data: Data, to: Path) -> Path:
    """Attention between agents in every message step, and over times: means over heads and test series."""
    maps = attention_maps(model.body, data.inputs["test"][:LOOKED_AT])  # pyrefly: ignore
    rows = [
        (f"hears, step {step + 1}", "agent", found.mean(0))
        for step, found in enumerate(maps.social if maps.social is not None else [])
    ]
    rows += [
        (f"remembers, step {step + 1}", "time", found.mean((0, 1)))
        for step, found in enumerate(maps.memory if maps.memory is not None else [])
    ]
    columns = max(1, min(len(rows), 4))
    lines = max(1, math.ceil(len(rows) / columns))
    figure = _figure(3.4 * columns, 3.2 * lines)
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axis in axes:
        axis.set_axis_off()
    for axis, (title, kind, weights) in zip(axes, rows, strict=False):
        axis.set_axis_on()
        shown = axis.imshow(weights.cpu().numpy(), vmin=0, cmap="viridis")
        _whole_numbers(axis)
        axis.set(title=title, ylabel=f"{kind} that looks", xlabel=f"{kind} looked at")
        figure.colorbar(shown, ax=axis, shrink=0.8)
    figure.savefig(to, dpi=120)
    return to


def social_graph(model: Answers, to: Path) -> Path | None:
    """The learnt biases as a ring of agents and as a matrix; None where there are none to learn."""
    bias = next((part for part in model.modules() if isinstance(part, SocialBias | EdgeBias)), None)
    if bias is None:
        return None
    with torch.no_grad():
        matrix = (bias() if isinstance(bias, SocialBias) else bias.dense()).float().cpu()
    figure = _figure(10, 4.6)
    left, right = figure.subplots(1, 2)
    _ring(left, matrix)
    learnt = matrix.masked_fill(torch.eye(len(matrix), dtype=torch.bool), torch.nan)
    widest = float(learnt[learnt.isfinite()].abs().max()) if learnt.isfinite().any() else 1.0
    right.set_facecolor("0.9")
    shown = right.imshow(
        learnt.masked_fill(~learnt.isfinite(), torch.nan).numpy(), cmap="RdBu_r", vmin=-widest, vmax=widest
    )
    _whole_numbers(right)
    right.set(title="bias; grey: cannot hear, or itself", ylabel="agent that hears", xlabel="agent heard")
    figure.colorbar(shown, ax=right, shrink=0.85)
    figure.savefig(to, dpi=120)
    return to


def _whole_numbers(axis: Any) -> None:
    for side in (axis.xaxis, axis.yaxis):
        side.get_major_locator().set_params(integer=True)


def _ring(axis: Any, matrix: Tensor) -> None:
    from matplotlib.patches import FancyArrowPatch

    agents = len(matrix)
    angle = torch.arange(agents) * (2 * math.pi / agents)
    x, y = torch.sin(angle).tolist(), torch.cos(angle).tolist()
    there = matrix.isfinite() & ~torch.eye(agents, dtype=torch.bool)
    widest = max(float(matrix[there].abs().max()), 1e-9) if there.any() else 1.0
    for hears, said in there.nonzero().tolist():
        value = float(matrix[hears, said])
        axis.add_patch(
            FancyArrowPatch(
                (x[said], y[said]),
                (x[hears], y[hears]),
                connectionstyle="arc3,rad=0.15",
                arrowstyle="-|>",
                mutation_scale=9,
                shrinkA=9,
                shrinkB=9,
                color="firebrick" if value > 0 else "steelblue",
                alpha=0.15 + 0.85 * abs(value) / widest,
                linewidth=0.6 + 1.6 * abs(value) / widest,
            )
        )
    axis.scatter(x, y, s=170, color="white", edgecolor="0.3", zorder=3)
    for agent in range(agents):
        axis.text(x[agent], y[agent], str(agent), ha="center", va="center", fontsize=8, zorder=4)
    axis.set(title="from who speaks to who hears\nred: drawn to, blue: away from", aspect="equal")
    axis.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25))
    axis.set_axis_off()


def draw_all(
    model: Answers, data: Data, metrics: list[dict[str, Any]], results: dict[str, Any], folder: Path
) -> list[Path]:
    """All pictures of a training, into its folder."""
    made = [curves(metrics, results, data.task.classes, folder / "curves.png")]
    made.append(attention(model, data, folder / "attention.png"))
    graph = social_graph(model, folder / "social_graph.png")
    return [*made, *([graph] if graph else [])]
