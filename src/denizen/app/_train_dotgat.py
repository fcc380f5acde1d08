"""`denizen train dotgat`: agent attention networks, from data to pictures."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, arg

from denizen._atomic import status_now
from denizen._printing import give, say
from denizen._run_folder import kind_of
from denizen.app._report import write_at_end
from denizen.errors import ConfigError, MissingExtra
from denizen.zoo.dotgat.config import Settings
from denizen.zoo.dotgat.folder import Folder

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.app._cli import Resume, Show
    from denizen.report import Page
    from denizen.zoo.dotgat import Trained


@dataclasses.dataclass(frozen=True)
class TrainDotGAT:
    """What `denizen train dotgat` does; the fields are its flags."""

    about: ClassVar[str] = """Train agents that each see a part of a series, remember, talk, and predict.

examples:
  denizen train dotgat                                         the next row of a series, from a fifth of its columns
  denizen train dotgat --task argmax_next --agents 12 --share 0.1
  denizen train dotgat --neighbours 0                          the same agents without a word between them
  denizen train dotgat --task lrmc --times 16 --features 16 --message-steps 1
  denizen train dotgat --variant captured --device cuda --precision bfloat16
  denizen train dotgat --resume runs/dotgat-20261128-120000    go on after Ctrl-C, a crash or a full disk
  torchrun --nproc-per-node 2 -m denizen train dotgat          each process takes a part of every batch"""

    settings: Annotated[Settings, arg(name="")] = dataclasses.field(default_factory=Settings)
    """What is trained on what."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/dotgat-DATE-TIME)")] = None
    """Run folder to write. It must be new or empty."""
    resume: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Go on with the training in this run folder, with the settings that it has."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the run folder."""

    def __call__(self, console: "Console") -> int:
        """Train, and tell what came out; under torchrun, all processes together."""
        from denizen.app._together import together

        with together(self.device, console) as device:
            return self._run(console, device)

    def _run(self, console: "Console", device: str | None) -> int:
        from denizen._processes import rank
        from denizen.app._folders import Interrupted, run_folder
        from denizen.zoo import dotgat

        report = _reporter(console)
        if self.resume is not None:
            if self.settings != Settings() or self.out is not None:
                raise ConfigError("--resume goes on with the settings of its folder: leave other flags out")
            say(console, f"{self.resume}: going on")
        with run_folder(self.resume or self.out, "dotgat", writes=rank() == 0) as out:
            try:
                if self.resume is not None:
                    trained = dotgat.resume(out, device=device, report=report)
                else:
                    trained = dotgat.train(self.settings, out, device=device, report=report)
            except KeyboardInterrupt:
                if kind_of(out) is None:
                    raise
                raise Interrupted(out, f"{Folder.open(out).manifest['epochs']} epochs") from None
        if trained.folder is not None:
            _tell(trained, console)
            if self.quiet:
                give(trained.folder)
        return 0


def resume(command: "Resume", console: "Console") -> None:
    """`denizen resume` of such a folder."""
    manifest = Folder.open(command.run).manifest
    epochs = manifest["settings"]["epochs"]
    longer = f"denizen train dotgat --epochs {2 * epochs}, with its other settings"
    if command.steps is not None:
        raise ConfigError(
            f"--steps {command.steps}: this training has its number of epochs, which its learning rate goes by; leave "
            f"it out to go on, or begin a longer one: {longer}"
        )
    if "results" in manifest:
        say(console, f"{command.run} is finished: nothing is missing. For more epochs: {longer}")
    TrainDotGAT(resume=command.run, device=command.device, quiet=command.quiet)(console)


def show(command: "Show", console: "Console") -> None:
    """`denizen show` of such a folder: how it stands, and its results where it has ended."""
    path, manifest = command.run, Folder.open(command.run).manifest
    settings = manifest["settings"]
    done = f"{manifest['epochs']} of {settings['epochs']} epochs"
    say(
        console,
        f"{settings['task']} by {settings['agents']} agents ({settings['variant']}), {done}, "
        f"{status_now(path, manifest['status'])}",
    )
    _tell_graph(manifest, console)
    report = _reporter(console)
    for row in manifest["metrics"][-5:]:
        report(row)
    if "results" in manifest:
        console.print(_table(manifest["results"]))


def report(folders: Sequence[Path]) -> "Page":
    """`denizen report` of such folders."""
    from denizen.report import Page
    from denizen.report._dotgat import networks

    manifests = [Folder.open(folder).manifest for folder in folders]
    statuses = [status_now(folder, one["status"]) for folder, one in zip(folders, manifests, strict=True)]
    first = manifests[0]["settings"]
    about = f"{first['task']} by {first['agents']} agents ({first['variant']})"
    page = Page("Agent attention networks", about if len(folders) == 1 else f"{len(folders)} trainings")
    networks(page, [str(folder) for folder in folders], manifests, statuses)
    return page


def _reporter(console: "Console") -> Any:
    def report(row: dict[str, Any]) -> None:
        checked = "".join(
            f"  {name.removeprefix('validation_')} {value:.4f}" for name, value in row.items() if "validation_" in name
        )
        told = f"epoch {row['epoch']:3d}  loss {row['loss']:.4f}" + (f"  | validation{checked}" if checked else "")
        say(console, told)

    return report


def _tell(trained: "Trained", console: "Console") -> None:
    from denizen.zoo.dotgat.data import draw
    from denizen.zoo.dotgat.pictures import draw_all

    assert trained.folder is not None
    say(console, f"ended: {trained.reason}")
    _tell_graph(Folder.open(trained.folder).manifest, console)
    console.print(_table(trained.results))
    try:
        made = draw_all(trained.model, draw(trained.settings), trained.metrics, trained.results, trained.folder)
        say(console, f"pictures    {', '.join(str(path) for path in made)}")
    except MissingExtra as error:
        say(console, f"no pictures: {error}")
    write_at_end(trained.folder, console, lambda: report([trained.folder]))  # type: ignore[list-item]
    say(console, f"run folder  {trained.folder}")


def _tell_graph(manifest: dict[str, Any], console: "Console") -> None:
    graph = manifest["data"].get("social")
    if graph:
        parts = "connected" if graph["components"] == 1 else f"{graph['components']} parts that never hear each other"
        contacts = f"{graph['degree_min']} to {graph['degree_max']} contacts each"
        say(console, f"social graph: {graph['edges']} pairs, {contacts}, {parts}")


def _table(results: dict[str, Any]) -> Any:
    from denizen._printing import Table

    test = results["test"]
    name = next(name for name in ("accuracy", "unknown_mse", "mse") if name in test)
    table = Table("test split", "accuracy" if name == "accuracy" else "mean squared error", box=None)
    table.add_row("agents together", f"{test[name]:.4f}")
    each = {"accuracy": "agent_accuracy", "mse": "agent_mse"}.get(name)
    if each:
        table.add_row("an agent by itself", f"{test[each]:.4f}")
    for baseline, value in results["baselines"].items():
        table.add_row(baseline, f"{value:.4f}")
    return table
