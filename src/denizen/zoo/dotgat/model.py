"""The network of a task, its loss and its measures."""

import torch
from torch import Tensor, nn

from denizen.nn import (
    DotGAT,
    DotGATConfig,
    DotGATReference,
    DynamicDotGAT,
    DynamicDotGATReference,
    EdgeBias,
    FactorPredictor,
    Isolated,
    Predictor,
    RunningMeans,
    SmallWorld,
    SocialBias,
    agent_cross_entropy,
    agent_mse,
    classification_metrics,
    completion_loss,
    completion_loss_original,
    completion_metrics,
    regression_metrics,
)
from denizen.zoo.dotgat.config import Settings
from denizen.zoo.dotgat.data import Data


class Answers(nn.Module):
    """Agents that answer a task.

    Attributes:
        body: the attention network.
        head: for completion, of each agent's own; None where the body answers itself.
    """

    def __init__(self, settings: Settings, data: Data) -> None:
        """Args:
        settings: sizes, switches and variant.
        data: task and sensing mask.
        """
        super().__init__()
        self.task, config = data.task, network_config(settings, data)
        plain = settings.variant == "reference"
        kept = {} if plain else {"checkpoint_steps": settings.checkpoint_steps}
        self.head: nn.Module | None = None
        if self.task.name == "lrmc":
            self.body: nn.Module = (DotGATReference if plain else DotGAT)(config, data.sensing, **kept)
            sizes = settings.agents, settings.hidden, settings.features
            square = settings.times == settings.features and settings.times > 1
            entries = settings.times * settings.features
            self.head = FactorPredictor(*sizes, settings.times) if square else Predictor(*sizes, entries)
        else:
            self.body = (DynamicDotGATReference if plain else DynamicDotGAT)(config, data.sensing, **kept)

    def forward(self, inputs: Tensor) -> Tensor:
        """Every agent's answer: `[batch, agents, y]` or `[batch, times, agents, y]`."""
        if self.head is not None:
            return self.head(self.body(inputs))
        outputs = self.body(inputs).outputs
        return outputs if self.task.every_time else outputs[:, -1]

    def facts(self) -> dict[str, object]:
        """Degrees and connectedness of the social graph, for a manifest; nothing where all or none are connected."""
        core = self.body.core if isinstance(self.body, DotGAT | DotGATReference) else self.body
        return {"social": core.bias.facts()._asdict()} if isinstance(core.bias, SocialBias | EdgeBias) else {}


def network_config(settings: Settings, data: Data) -> DotGATConfig:
    """Sizes and switches of the attention network."""
    social: SmallWorld | Isolated | None = SmallWorld(
        neighbours=max(settings.neighbours, 0),
        rewire_prob=settings.rewire_prob,
        freeze=settings.freeze,
        seed=settings.seed,
    )
    if settings.neighbours < 1:
        social = Isolated() if settings.neighbours == 0 else None
    return DotGATConfig(
        num_agents=settings.agents,
        num_features=data.sensing.shape[1],
        hidden=settings.hidden,
        num_heads=settings.heads,
        num_outputs=data.task.outputs(settings.times, settings.features),
        message_steps=settings.message_steps,
        memory=settings.memory,
        social=social,
        dropout=settings.dropout,
    )


class Judge(nn.Module):
    """Loss and measures of a task; a module so that the mask of known entries moves with it."""

    known: Tensor | None

    def __init__(self, settings: Settings, data: Data) -> None:
        super().__init__()
        self.task, self.rows, self.transport = data.task, settings.times, settings.transport
        self.register_buffer("known", data.known, persistent=False)

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of a batch."""
        if self.known is not None:
            if self.transport:
                return completion_loss_original(answers, targets, self.known, self.rows)
            return completion_loss(answers, targets, self.known)
        return (agent_cross_entropy if self.task.classes else agent_mse)(answers, targets)

    def measure(self, means: RunningMeans, answers: Tensor, targets: Tensor) -> None:
        """Add a batch to the measures."""
        if self.known is not None:
            means.add(**completion_metrics(answers, targets, self.known, self.rows))
        elif self.task.classes:
            means.add(**classification_metrics(answers, targets))
        else:
            means.add(**regression_metrics(answers, targets))
        means.add(loss=self.loss(answers, targets).expand(len(targets)))


@torch.no_grad()
def evaluate(model: nn.Module, judge: Judge, inputs: Tensor, targets: Tensor, batch: int) -> dict[str, float]:
    """Measures over all of `inputs`, in batches. The model keeps its mode."""
    device, training, means = next(model.parameters()).device, model.training, RunningMeans()
    model.eval()
    for x, y in zip(inputs.split(batch), targets.split(batch), strict=True):
        judge.measure(means, model(x.to(device)).float(), y.to(device))
    model.train(training)
    return means.result()
