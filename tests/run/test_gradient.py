"""Gradients computed whole: equal to a run and `backward`; with recomputation, compiled, captured, with updates."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Ask, During, Scale
from denizen.perf.watch import allocations, counting, sync_warnings
from denizen.relax import MeanField, StraightThrough
from denizen.run import CapturedFunction, Gradient
from denizen.space import Graph
from denizen.zoo.covid import covid
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR
from inside import Inside

AGENTS = 60


def contacts() -> Graph:
    return Graph.from_edges(*np.random.default_rng(0).integers(0, AGENTS, (2, 300)), AGENTS)


def little_covid() -> Any:
    population = dz.population.synthetic("astoria", size=300)
    origin = torch.from_numpy(np.random.default_rng(1).choice(3, 300, p=[0.7, 0.15, 0.15]).astype(np.uint8))
    return covid(population, R=[9.0, 6.0, 3.0]).replace(origin=origin)


MODELS: dict[str, tuple[Callable[[], Any], str, list[str]]] = {
    "sir": (lambda: SIR(contacts(), seed_share=0.2), "cases", ["infect_rate", "infectious_days"]),
    "seir": (lambda: SEIR(contacts(), seed_share=0.2), "cases", ["infect_rate"]),
    "covid": (little_covid, "daily_infected", ["R", "infector"]),
}


def made(name: str, steps: int = 11, relax: Any = None, **options: Any) -> Gradient:
    build, series, wrt = MODELS[name]
    chosen = relax if relax is not None else StraightThrough()
    return Gradient(
        build(), lambda s: s[series].sum(dim=1).mean(), steps, wrt=wrt, relax=chosen, device="cpu", **options
    )


def by_hand(name: str, steps: int, relax: Any, replicates: int, seed: int) -> tuple[Tensor, list[Tensor]]:
    build, series, wrt = MODELS[name]
    model = build()
    leaves = {n: getattr(model, n).clone().requires_grad_() for n in wrt}
    run = dz.simulate(model.replace(**leaves), steps, relax=relax, replicates=replicates, seed=seed, device="cpu")
    loss = run[series].sum(dim=1).mean()
    return loss.detach(), list(torch.autograd.grad(loss, list(leaves.values())))


@pytest.mark.parametrize("relax", [StraightThrough(), MeanField()])
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_equals_a_run_and_backward(name: str, replicates: int, relax: Any) -> None:
    loss, slopes = by_hand(name, 11, relax, replicates, seed=3)
    gradient = made(name, relax=relax, replicates=replicates, seed=3)
    assert torch.equal(gradient(), loss)
    for mine, slope in zip(gradient.gradients.values(), slopes, strict=True):
        assert mine.any()
        torch.testing.assert_close(mine, slope, rtol=1e-6, atol=0.0)
    gradient.check()
    assert all(value.grad is gradient.gradients[n] for n, value in gradient.params.items())


@pytest.mark.parametrize("block", [1, 2, 3, 8, 11, 40])
@pytest.mark.parametrize("name", MODELS)
def test_recomputation_changes_no_bit(name: str, block: int) -> None:
    plain, recomputed = made(name, replicates=2), made(name, replicates=2, checkpoint=block)
    assert (plain.checkpoint, recomputed.checkpoint) == (None, min(block, 11))
    assert torch.equal(plain(), recomputed())
    for mine, other in zip(plain.gradients.values(), recomputed.gradients.values(), strict=True):
        assert torch.equal(mine, other)


class Live(TorchDispatchMode):
    """Counts the bytes of storages that are alive, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def _drop(self, where: int, size: int) -> None:
        self.now -= size
        self._seen.discard(where)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._seen:
                    self._seen.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self._drop, storage._cdata, storage.nbytes())
        return out


def test_recomputation_lowers_the_peak() -> None:
    peaks = {}
    for block in (None, 4, 1):
        gradient = made("covid", 24, checkpoint=block)
        with Live() as live:
            gradient()
        peaks[block] = live.peak
    assert peaks[1] < peaks[4] < 0.5 * peaks[None]


def test_what_a_step_keeps_is_measured() -> None:
    """Without recomputation the peak is what `bytes` says, within its allowance for what a step works with."""
    for steps in (10, 20):
        gradient = made("covid", steps)
        with Live() as live:
            gradient()
        kept = gradient.bytes["step"] * steps
        assert 0.8 * kept < live.peak < 1.2 * gradient.bytes["needed"]


@pytest.mark.parametrize("compiled", [False, True])
def test_measuring_leaves_no_graph_behind(compiled: bool, inside: Inside) -> None:
    """It would hold memory, and the parameters' nodes with their stream, so that nothing could be captured."""
    inside.backend("aot_eager")
    inside.pieces(2)
    torch._dynamo.reset()

    def graphs() -> int:
        gc.collect()
        return sum(type(held) is Tensor and held.grad_fn is not None for held in gc.get_objects())

    before = graphs()
    gradient = made("seir", compile=compiled, replicates=3, checkpoint=4)
    assert graphs() == before
    assert gradient.path == ("compiled" if compiled else "eager")


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("name", MODELS)
def test_no_value_is_read_on_the_host(name: str, block: int | None) -> None:
    gradient = made(name, checkpoint=block, optimizer=lambda params: torch.optim.SGD(params, lr=1e-4))
    with counting(torch.device("cpu")) as counts:
        gradient()
    assert counts.host_reads.total() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_columns_keep_less(dtype: torch.dtype) -> None:
    plain, narrow = made("covid"), made("covid", precision={"exposed": dtype})
    assert torch.equal(plain(), narrow())
    assert narrow.bytes["state"] < 0.6 * plain.bytes["state"]
    assert {leaf.dtype for leaf in narrow._sides[0].ends.run_state.leaves} == {dtype, torch.float32}
    for mine, other in zip(narrow.gradients.values(), plain.gradients.values(), strict=True):
        assert not torch.equal(mine, other)
        torch.testing.assert_close(mine, other, rtol=0.02, atol=0.02)


# --- values that change between calls ---------------------------------------------------------------------------------


@pytest.fixture(params=[False, True])
def captured(request: pytest.FixtureRequest, played_graphs: None) -> Callable[[Gradient], Gradient]:
    """Turns a gradient into one that is captured, with the graph replaced by plain calls; or leaves it as it is."""

    def turn(gradient: Gradient) -> Gradient:
        gradient._call.captures = request.param
        return gradient

    return turn


def test_seed_and_parameters_are_read_at_every_call(captured: Any) -> None:
    gradient = captured(made("sir"))
    losses = [gradient() for _ in range(3)]
    assert losses[0] == losses[1] == losses[2]  # common random numbers
    slopes = gradient.gradients["infect_rate"].clone()
    for seed in (1, 2, 0):
        gradient.seed.fill_(seed)
        loss, (slope, _) = by_hand("sir", 11, StraightThrough(), 1, seed)
        assert torch.equal(gradient(), loss)
        torch.testing.assert_close(gradient.gradients["infect_rate"], slope, rtol=1e-6, atol=0.0)
    assert torch.equal(gradient.gradients["infect_rate"], slopes)
    with torch.no_grad():
        gradient.params["infect_rate"].fill_(0.0)
    assert gradient() == 0
    assert torch.equal(gradient.series["cases"], torch.zeros(1, 11))


def test_what_a_gradient_holds_is_free_with_it(captured: Any) -> None:
    gradient = captured(made("sir"))
    for _ in range(3):
        seen = [weakref.ref(gradient), weakref.ref(gradient()), weakref.ref(gradient.params["infect_rate"])]
    gc.collect()
    gc.disable()
    try:
        del gradient
        assert [ref() for ref in seen] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("reason", ["operation not permitted when stream is capturing", "CUDA out of memory"])
def test_what_cannot_be_captured_goes_on_without(
    reason: str, played_graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, pool: object) -> None:
        raise RuntimeError(reason)

    monkeypatch.setattr(CapturedFunction, "_attempt", refuse)
    gradient = made("sir")
    gradient._call.captures = True
    first = gradient()
    told = f"could not be captured in a CUDA graph and run eagerly, with equal results: {reason}"
    with pytest.warns(UserWarning, match=told):
        assert gradient() == first
    assert gradient() == first
    assert gradient.path == "eager"


def test_updates_are_those_of_the_optimiser_alone(captured: Any) -> None:
    """No call does more or less than one step, the first ones included."""
    gradient = captured(made("sir", optimizer=lambda params: torch.optim.Adam(params, lr=0.01)))
    rate, days = torch.tensor(0.05, requires_grad=True), torch.tensor(6.0, requires_grad=True)
    start = SIR(contacts(), seed_share=0.2)
    rate, days = (getattr(start, n).clone().requires_grad_() for n in ("infect_rate", "infectious_days"))
    adam = torch.optim.Adam([rate, days], lr=0.01)
    for _ in range(4):
        model = start.with_values({"infect_rate": rate, "infectious_days": days})
        loss = dz.simulate(model, 11, relax=StraightThrough(), device="cpu")["cases"].sum()
        assert torch.equal(gradient(), loss.detach())
        adam.zero_grad()
        loss.backward()
        adam.step()
        torch.testing.assert_close(gradient.params["infect_rate"], rate, rtol=1e-6, atol=0.0)
        torch.testing.assert_close(gradient.params["infectious_days"], days, rtol=1e-6, atol=0.0)


def test_a_module_is_trained_in_place() -> None:
    policy = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Sigmoid())
    model = little_covid().replace(policy=policy)
    before = policy[0].weight.detach().clone()
    gradient = Gradient(
        model,
        lambda s: s["daily_infected"].sum(),
        9,
        wrt=["policy", "R"],
        relax=StraightThrough(),
        device="cpu",
        optimizer=lambda params: torch.optim.SGD(params, lr=1e-3),
    )
    assert list(gradient.params) == ["R", "policy.0.weight", "policy.0.bias"]
    gradient()
    assert not torch.equal(policy[0].weight, before)
    assert policy[0].weight is gradient.params["policy.0.weight"]


def test_interventions_take_part() -> None:
    acts = [Scale(target="infect_rate", factor=0.0, when=During(3))]
    gradient = Gradient(
        SIR(contacts(), seed_share=0.2),
        lambda s: s["cases"].sum(),
        9,
        wrt=["infect_rate"],
        relax=MeanField(),
        interventions=acts,
        device="cpu",
    )
    gradient()
    assert gradient.series["cases"][:, 3:].abs().max() < 1e-4
    assert gradient.series["cases"][:, :3].min() > 0.1


def test_losses_of_further_series() -> None:
    def ill(now: Any) -> Tensor:
        return now.stage.is_("infected").sum()

    model = SIR(contacts(), seed_share=0.2)
    gradient = Gradient(
        model,
        lambda s: s["ill"][:, -1].mean(),
        9,
        wrt=["infect_rate"],
        relax=MeanField(),
        record={"ill": ill},
        device="cpu",
    )
    value = dz.simulate(model, 9, relax=MeanField(), device="cpu")["infected"][:, -1].mean()
    assert gradient() == value
    assert gradient.gradients["infect_rate"].any()


# --- compiled ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "replicates", "block"),
    [
        ("sir", 1, None),
        ("seir", 3, 4),
        pytest.param("covid", 1, None, marks=pytest.mark.slow),
    ],
)
def test_pieces_are_compiled_into_at_most_two_graphs(
    name: str, replicates: int, block: int | None, inside: Inside
) -> None:
    inside.backend("aot_eager")
    inside.pieces(2)
    torch._dynamo.reset()
    plain = made(name, 9, replicates=replicates)
    whole = made(name, 9, replicates=replicates, checkpoint=block, compile=True)
    for seed in (0, 1, 2):
        plain.seed.fill_(seed)
        whole.seed.fill_(seed)
        assert torch.equal(plain(), whole())
        torch.testing.assert_close(plain.gradients, whole.gradients, rtol=1e-5, atol=1e-4)
    assert whole._rollout.graphs == 2
    assert whole.path == "compiled"


@pytest.mark.compile
@pytest.mark.slow
def test_inductor_gives_the_eager_gradient(inside: Inside) -> None:
    """In pieces of two steps and of one: each step of a longer piece is compiled by itself, for ten seconds."""
    inside.pieces(2)
    plain, whole = made("covid", 7), made("covid", 7, compile=True)
    assert torch.equal(plain(), whole())
    assert all(slope.any() for slope in plain.gradients.values())
    torch.testing.assert_close(plain.gradients, whole.gradients, rtol=1e-5, atol=1e-4)
    assert whole.bytes["step"] < 0.5 * plain.bytes["step"]


def test_what_cannot_be_compiled_stays_eager(inside: Inside) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler here")

    inside.backend(broken)
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="could not be compiled"):
        gradient = made("sir", compile=True)
    assert gradient.path == "eager"
    assert torch.equal(gradient(), made("sir")())


@pytest.mark.cuda
@pytest.mark.parametrize(("replicates", "block"), [(1, None), (3, 4)])
@pytest.mark.parametrize("name", MODELS)
def test_captured_on_cuda(name: str, replicates: int, block: int | None) -> None:
    build, series, wrt = MODELS[name]

    def on(device: str, **options: Any) -> Gradient:
        return Gradient(
            build(),
            lambda s: s[series].sum(dim=1).mean(),
            11,
            wrt=wrt,
            relax=StraightThrough(),
            device=device,
            replicates=replicates,
            optimizer=lambda params: torch.optim.Adam(params, lr=1e-3, maximize=True),
            **options,
        )

    plain, whole = on("cuda", compile=False), on("cuda", checkpoint=block)
    host = on("cpu")
    for call in range(4):
        losses = [gradient().cpu() for gradient in (plain, whole, host)]
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(losses[2], losses[0], rtol=1e-5, atol=1e-3)
        torch.testing.assert_close(whole.gradients, plain.gradients, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(whole.params, plain.params, rtol=1e-3, atol=1e-3)
        assert whole.path == ("compiled" if call == 0 else "captured")
    assert whole._rollout.graphs <= 2
    again = on("cuda", checkpoint=block)
    for _ in range(4):
        again()
    for mine, other in zip(again.gradients.values(), whole.gradients.values(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.cuda
def test_replays_follow_the_seed() -> None:
    gradient = Gradient(
        SIR(contacts(), seed_share=0.2),
        lambda s: s["cases"].sum(),
        9,
        wrt=["infect_rate"],
        relax=StraightThrough(),
        device="cuda",
    )
    kept = []
    for seed in (0, 1, 2, 3, 4, 0):
        gradient.seed.fill_(seed)
        with sync_warnings() as waits, allocations(gradient.seed.device) as memory:
            kept.append(gradient())
        # Compiling and capturing wait and take memory; replays do not, but for the loss that is returned.
        assert not waits or len(kept) < 3
        assert (memory.count <= 1 and memory.device_mallocs == 0) or len(kept) < 4
    losses = [float(loss) for loss in kept]
    assert gradient.path == "captured"
    assert losses[0] == losses[-1]
    assert len(set(losses)) > 2
    gradient.check()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": 3}, "model is int"),
        ({"steps": 0}, "steps=0, expected a whole number, at least 1"),
        ({"seed": -1}, "seed=-1"),
        ({"checkpoint": 0}, "checkpoint=0"),
        ({"compile": 1}, "compile=1"),
        ({"dt": -1.0}, "Gradient: dt=-1.0, expected a number above 0"),
        ({"dt": "a"}, "dt='a'"),
        ({"loss": 3}, "loss=3, expected a function"),
        ({"replicates": 10**12}, "Gradient: .* replicates need at least .* are free on cpu"),
        ({"wrt": [1]}, "wrt has 1"),
        ({"wrt": "infect_rate"}, "expected a list of names"),
        ({"wrt": ["infect_rat"]}, "infect_rate"),
        ({"relax": StraightThrough}, "expected an object such as"),
        ({"loss": lambda s: s["cases"]}, r"loss returned torch.float32 \(1, 5\)"),
        ({"loss": lambda s: s["case"].sum()}, "cases"),
        ({"loss": lambda s: torch.tensor(1.0)}, "loss reads no series"),
        ({"optimizer": lambda params: 3}, "expected a function of a list of parameters"),
        (
            {"interventions": [Ask(target="infect_rate", groups=["all"], answer=lambda g, s: 0.1)]},
            "asks the host",
        ),
    ],
)
def test_wrong_arguments(changes: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {
        "model": SIR(contacts()),
        "loss": lambda s: s["cases"].sum(),
        "steps": 5,
        "wrt": ["infect_rate"],
        "relax": MeanField(),
        "device": "cpu",
    }
    given = {**usual, **changes}
    with pytest.raises(InputError, match=message):
        Gradient(given.pop("model"), given.pop("loss"), given.pop("steps"), **given)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_parameters_that_cannot_matter_are_refused(compiled: bool, inside: Inside) -> None:
    inside.backend("aot_eager")
    gradient = Gradient(
        SIR(contacts()),
        lambda s: s["cases"].sum(),
        3,
        wrt=["infect_rate", "seed_share"],
        relax=StraightThrough(),
        device="cpu",
        compile=compiled,
    )
    gradient()  # who is ill at the start matters

    with pytest.raises(InputError, match="the loss does not depend on 'mortality'; leave it out of wrt"):
        Gradient(
            little_covid(),
            lambda s: s["daily_infected"].sum(),
            3,
            wrt=["R", "mortality"],
            relax=StraightThrough(),
            device="cpu",
            compile=compiled,
        )()


def test_failed_checks_make_the_loss_nan() -> None:
    gradient = made("sir")
    with torch.no_grad():
        gradient.params["infect_rate"].fill_(-1.0)
    assert torch.isnan(gradient())
    with pytest.raises(ModelError, match=r"rng.event\('catch'\)|rng.bernoulli"):
        gradient.check()


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_failed_checks_change_no_parameter(optimizer: Any) -> None:
    """One step too far must not be the beginning of the end."""
    gradient = made("sir", optimizer=lambda params: optimizer(params, lr=1e-6))
    gradient()
    good = {name: value.detach().clone() for name, value in gradient.params.items()}
    with torch.no_grad():
        gradient.params["infect_rate"].fill_(-1.0)
    assert torch.isnan(gradient())
    assert float(gradient.params["infect_rate"].detach()) == -1.0
    assert all(not slope.any() for slope in gradient.gradients.values())
    with torch.no_grad():
        for name, value in good.items():
            gradient.params[name].copy_(value)
    assert torch.isfinite(gradient())
    assert all(torch.isfinite(value).all() for value in gradient.params.values())


# --- modules that give parameters, and worlds in hard form ------------------------------------------------------------


class Rates(torch.nn.Module):
    """Rate and days from free numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.free = torch.nn.Parameter(torch.tensor([-3.0, 2.0]))

    def forward(self) -> dict[str, Tensor]:
        rate, days = self.free.exp()
        return {"infect_rate": rate, "infectious_days": days}


@pytest.mark.parametrize(
    ("replicates", "compiled"), [(1, False), (3, False), pytest.param(3, True, marks=pytest.mark.slow)]
)
def test_a_module_gives_the_parameters(replicates: int, compiled: bool, inside: Inside) -> None:
    inside.backend("aot_eager")
    inside.pieces(1)
    steps = 2 if compiled else 11
    source = Rates()
    gradient = Gradient(
        SIR(contacts(), seed_share=0.2),
        lambda s: s["cases"].sum(dim=1).mean(),
        steps,
        wrt=source,
        relax=StraightThrough(),
        replicates=replicates,
        device="cpu",
        compile=compiled,
    )
    for free in ([-3.0, 2.0], [-2.5, 1.5]):
        with torch.no_grad():
            source.free.copy_(torch.tensor(free))
        model = SIR(contacts(), seed_share=0.2).with_values(source())
        run = dz.simulate(model, steps, relax=StraightThrough(), replicates=replicates, device="cpu")
        loss = run["cases"].sum(dim=1).mean()
        assert torch.equal(gradient(), loss.detach())
        torch.testing.assert_close(gradient.gradients["free"], torch.autograd.grad(loss, source.free)[0])
    assert gradient.path == ("compiled" if compiled else "eager")


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("named", [False, True])
def test_hard_worlds_are_those_of_a_run(named: bool, block: int | None) -> None:
    model = SIR(contacts(), seed_share=0.2)
    seen: list[Tensor] = []

    def loss(series: Any, hard: Any) -> Tensor:
        seen.append(hard["cases"])
        return (series["cases"].mean(0) * hard["cases"].float().mean(0)).sum()

    gradient = Gradient(
        model,
        loss,
        9,
        wrt=["infect_rate"] if named else Rates(),
        relax=MeanField(),
        replicates=2,
        hard=3,
        device="cpu",
        checkpoint=block,
    )
    values = {} if named else {name: value.detach() for name, value in Rates()().items()}
    for start in (0, 5):
        gradient.worlds.copy_(torch.arange(start, start + 5))
        with counting(torch.device("cpu")) as counts:
            gradient()
        assert counts.host_reads.total() == 0
        run = dz.simulate(model.with_values(values), 9, worlds=range(start + 2, start + 5), device="cpu")
        assert torch.equal(seen[-1], run["cases"])
        assert not seen[-1].requires_grad
    gradient.check()
    assert "2 + 3 × 9 steps" in repr(gradient)
    assert gradient.series["cases"].shape == (2, 9)


@pytest.mark.parametrize(("rate", "captured"), [(0.1, False), (0.1, True)])
def test_a_step_of_adam_out_of_the_bounds_is_told_at_once(rate: float, captured: bool, played_graphs: None) -> None:
    observed = torch.full((11,), 2.0)
    gradient = Gradient(
        SIR(contacts(), seed_share=0.2, infect_rate=0.08),
        lambda s: ((s["cases"].mean(0) - observed) ** 2).mean(),
        11,
        wrt=["infect_rate"],
        relax=StraightThrough(),
        device="cpu",
        optimizer=lambda params: torch.optim.Adam(params, lr=rate),
    )
    gradient._call.captures = captured
    assert torch.isfinite(gradient())
    words = r"SIR.infect_rate = -0.02: expected at least 0 .*lower the learning rate, since update 1 went too far"
    with pytest.raises(InputError, match=words):
        gradient()


class Raw(Rates):
    def forward(self) -> dict[str, Tensor]:
        return {"infect_rate": self.free[0], "infectious_days": self.free[1]}


def test_a_module_out_of_the_bounds_is_named() -> None:
    gradient = Gradient(
        SIR(contacts()), lambda s: s["cases"].sum(), 3, wrt=Raw(), relax=StraightThrough(), replicates=2, device="cpu"
    )
    assert torch.isnan(gradient())
    with pytest.raises(
        InputError, match=r"SIR.infect_rate = -3: expected at least 0 .*Raw gives it: end that with exp"
    ):
        gradient()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"infect_rat": 1}, "Odd gave 'infect_rat'; did you mean 'infect_rate'"),
        ({"infect_rate": torch.zeros(2)}, r"Odd gave 'infect_rate' of shape \(2,\), expected a tensor of shape \(\)"),
        ({"infect_rate": 0.5}, "Odd gave 'infect_rate' of shape 0.5, expected a tensor"),
        (3, "Odd gave 3, expected parameters by name"),
    ],
)
def test_modules_that_give_something_else(given: Any, message: str) -> None:
    class Odd(Rates):
        def forward(self) -> Any:
            return given

    with pytest.raises(InputError, match=message):
        Gradient(SIR(contacts()), lambda s: s["cases"].sum(), 3, wrt=Odd(), relax=StraightThrough(), device="cpu")


def test_a_module_without_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="wrt=Identity has no parameter that requires a gradient"):
        Gradient(
            SIR(contacts()),
            lambda s: s["cases"].sum(),
            3,
            wrt=torch.nn.Identity(),
            relax=StraightThrough(),
            device="cpu",
        )
