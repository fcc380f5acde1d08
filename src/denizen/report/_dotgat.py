"""Reports of agent attention networks: losses, results beside those of simple rules, what agents hear."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from denizen.report._charts import Curve
from denizen.report._page import Page, picture_file, settings_of_runs, status_note

PICTURES = {
    "attention.png": "Whom agents hear and which times they remember: mean attention over heads and series",
    "social_graph.png": "The learnt social graph: biases between agents",
}


def networks(page: Page, names: Sequence[str], manifests: Sequence[Mapping[str, Any]], statuses: Sequence[str]) -> None:
    """Add trainings of agent attention networks to a page.

    Args:
        page: grows.
        names: folders of the trainings.
        manifests: of the folders.
        statuses: how each stands.
    """
    for name, manifest, status in zip(names, manifests, statuses, strict=True):
        done = f"{manifest['epochs']} of {manifest['settings']['epochs']} epochs"
        status_note(page, name, "finished" if status == "done" else status, done)
    page.section("How they learned")
    several = len(names) > 1
    losses = [
        curve
        for k, (name, manifest) in enumerate(zip(names, manifests, strict=True))
        for curve in (
            _curve(manifest, "loss", f"{name}, training" if several else "training", 2 * k),
            _curve(manifest, "validation_loss", f"{name}, validation" if several else "validation", 2 * k + 1),
        )
    ]
    page.curves("Loss", None, losses, x_label="epoch", y_label="loss")
    measure = next((m for m in ("accuracy", "mse", "unknown_mse") if _has(manifests[0], f"validation_{m}")), None)
    if measure is not None:
        curves = [
            _curve(m, f"validation_{measure}", n, k) for k, (n, m) in enumerate(zip(names, manifests, strict=True))
        ]
        y_label = "accuracy" if measure == "accuracy" else "mean squared error"
        page.curves("Agents together, in the validation split", None, curves, x_label="epoch", y_label=y_label)
    _results(page, names, manifests)
    for name in names:
        for file, title in PICTURES.items():
            if (Path(name) / file).exists():
                picture_file(page, Path(name) / file, Path(name), title)
    page.section("What was trained")
    settings_of_runs(page, "Settings", names, [manifest["settings"] for manifest in manifests])
    settings_of_runs(page, "Data", names, [manifest["data"] for manifest in manifests])
    kept = ("commit", "updated")
    settings_of_runs(page, "Versions", names, [{**m["versions"], **{n: m.get(n) for n in kept}} for m in manifests])


def _has(manifest: Mapping[str, Any], name: str) -> bool:
    return any(name in row for row in manifest["metrics"])


def _curve(manifest: Mapping[str, Any], name: str, told: str, colour: int) -> Curve:
    rows = [row for row in manifest["metrics"] if name in row]
    return Curve(told, [row[name] for row in rows], x=[row["epoch"] for row in rows], colour=colour)


def _results(page: Page, names: Sequence[str], manifests: Sequence[Mapping[str, Any]]) -> None:
    found = [
        (name, manifest["results"]) for name, manifest in zip(names, manifests, strict=True) if "results" in manifest
    ]
    rows = []
    for name, results in found:
        test = results["test"]
        measure = next(m for m in ("accuracy", "unknown_mse", "mse") if m in test)
        each = {"accuracy": "agent_accuracy", "mse": "agent_mse"}.get(measure)
        told = {"agents together": test[measure], **({"an agent by itself": test[each]} if each else {})}
        rows += [[by, name, measure, value] for by, value in {**told, **results["baselines"]}.items()]
    if rows:
        page.table("In the test split", ["by", "training", "measure", "value"], rows)
