"""The worlds of `learning_gpu.py`: how each is trained, what counts as learnt, how long it takes on an H100."""

import dataclasses
import math
from collections.abc import Mapping

from denizen.zoo import entry

PENDULUM = "-130, tuned, gymnax; no policy has more than -137.8 in the mean"
MODES = ("ground_truth", "ground_truth_blinded", "proxy_mortal", "proxy", "ground_truth_handhold")


@dataclasses.dataclass(frozen=True)
class Case:
    """A world and how it is trained.

    Attributes:
        world: name of the recipe.
        judged: ``"late"``, ``"evaluated"`` or ``"energy"``.
        published: what others reached, in words.
        least: the mean over seeds that counts as learnt; None: only reported.
        most: the mean above which the world must be wrong; None: none is.
        algo: ``"ppo"`` or ``"grpo"``.
        steps: None: the recipe's.
        set: settings beside the recipe's.
        options: of the world.
        policy: options of the policy.
        greedy: evaluate the likeliest actions.
        life: steps of a life in evaluation at most; None: the world's limit.
        update: milliseconds of an update on an H100.
        samples: steps of worlds in one update.
        overlap: how much several seeds gain by running on streams of their own; a guess on the safe side.
        derived: `update` was not measured but derived.
        ready: seconds until captured with nothing in inductor's cache, beside other compilations.
        judging: seconds of the evaluation.
    """

    world: str
    judged: str
    published: str
    least: float | None = None
    most: float | None = None
    algo: str = "ppo"
    steps: int | None = None
    set: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    policy: Mapping[str, str] = dataclasses.field(default_factory=dict)
    greedy: bool = False
    life: int | None = None
    update: float = 5.6
    samples: int = 512
    overlap: float = 1.5
    derived: bool = True
    ready: float = 40.0
    judging: float = 3.0


READY_AGAIN = 6.0  # seconds until captured when inductor's cache has it; measured on two cores
MINATAR = {
    "ready": 55.0,
    "update": 11.0,
    "samples": 8192,
    "derived": False,
    "judging": 5.0,
}  # four games of five seeds at once: 7.2 ms of the card for each update
CASES = {
    "breakout": Case("breakout", "evaluated", "28, tuned, gymnax", least=28.0, **MINATAR),
    "spaceinvaders": Case("spaceinvaders", "evaluated", "131, tuned, gymnax", least=131.0, **MINATAR),
    "asterix": Case("asterix", "evaluated", "15, tuned, gymnax", **MINATAR),
    "freeway": Case("freeway", "evaluated", "58, tuned, gymnax", **{**MINATAR, "judging": 12.0}),
    "seaquest": Case("seaquest", "evaluated", "none with these settings", **MINATAR),
    "lander": Case("lander", "evaluated", "200 counts as solved, Gymnasium", least=200.0, update=60, samples=16_384),
    "keydoor": Case("keydoor", "evaluated", "shortest ways of its levels: 0.913", least=0.8, update=12, samples=16_384),
    "cartpole": Case("cartpole", "late", "490.0 ± 6.1, CleanRL and PureJaxRL's settings", least=478.0),
    "acrobot": Case("acrobot", "late", "-86.4 ± 1.3, CleanRL", least=-89.0),
    "mountaincar": Case("mountaincar", "late", "-200, CleanRL: must not be solved", least=-200.0, most=-200.0),
    "catch": Case("catch", "late", "1, optimal", least=0.95),
    "pendulum": Case("pendulum", "evaluated", PENDULUM, least=-160.0, greedy=True, update=45, samples=2048),
    "fruits-grpo": Case(
        "fruits",
        "evaluated",
        "5.29 chasing the lowest, 7.87 with hindsight",
        least=5.29,
        algo="grpo",
        greedy=True,
        life=100,
        update=12,
        samples=25_600,
    ),
    "control": Case(
        "control",
        "evaluated",
        "best constant policy (1,000 people): -32.8",
        greedy=True,
        update=500,
        samples=512,
    ),
    "cartpole-4096": Case(
        "cartpole",
        "late",
        "500, the limit",
        least=475.0,
        steps=104_857_600,
        set={"num_envs": "4096"},
        update=13.2,
        samples=524_288,
        overlap=1.1,
        derived=False,
    ),
    **{
        f"foraging-{mode}": Case(
            "foraging",
            "energy",
            "+144.6 published; bar +120" if mode == "ground_truth" else "none that counts",
            least=120.0 if mode == "ground_truth" else None,
            options={"mode": mode},
            update=34.6,
            samples=24_576,
            overlap=1.1,
            derived=False,
            ready=20.0,
            judging=8.0,
        )
        for mode in MODES
    },
}


def steps_of(case, scale):
    """Steps of worlds of a training."""
    return max(1, int((case.steps or entry(case.world).steps) * scale))


def alone(name, seeds, scale=1.0):
    """(seconds of the host until captured, seconds of the card) of some seeds of a world on an H100."""
    case = CASES[name]
    updates = math.ceil(steps_of(case, scale) / case.samples)
    training = seeds * updates * case.update / 1e3 / (case.overlap if seeds > 1 else 1.0)
    return case.ready + READY_AGAIN * (seeds - 1), training + seeds * case.judging


def foretold(tasks, jobs, scale):
    """(task, begin, end) of each, if what is captured has equal shares of the card and compiling waits for nothing."""
    waiting, running, clock, found = list(tasks), [], 0.0, []
    while waiting or running:
        while waiting and len(running) < jobs:
            task = waiting.pop(0)
            host, card = alone(task[0], len(task[1]), scale)
            running.append([task, clock, host, card])
        sharing = max(1, sum(host <= 0 for _, _, host, _ in running))
        passed = min(host if host > 0 else card * sharing for _, _, host, card in running)
        clock += passed
        for one in running:
            which, share = (2, passed) if one[2] > 0 else (3, passed / sharing)
            one[which] -= share
        found += [(one[0], one[1], clock) for one in running if one[2] <= 1e-9 and one[3] <= 1e-9]
        running = [one for one in running if one[2] > 1e-9 or one[3] > 1e-9]
        for one in running:
            one[2] = one[2] if one[2] > 1e-9 else 0.0
    return found


def told_plan(tasks, given):
    """Lines about when each world would begin and end."""
    lines = [f"{'world':24s} {'seeds':>5s} {'steps':>8s} {'alone s':>8s} {'begins':>7s} {'ends':>6s}"]
    late = []
    for (name, seeds), begin, end in sorted(foretold(tasks, given.jobs, given.steps_scale), key=lambda one: one[1]):
        case = CASES[name]
        steps = steps_of(case, given.steps_scale)
        mark = "~" if case.derived else ""
        need = mark + format(sum(alone(name, len(seeds), given.steps_scale)), ".0f")
        lines.append(f"{name:24s} {len(seeds):5d} {steps / 1e6:7.1f}M {need:>8s} {begin:7.0f} {end:6.0f}")
        late += [name] if end > given.budget_seconds else []
    return lines + ([f"would end after the budget: {', '.join(late)}; run them in another call"] if late else [])
