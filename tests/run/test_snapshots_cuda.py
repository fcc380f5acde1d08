"""Snapshots that leave a GPU while it goes on equal those of a run that stands still; needs torch and pytest alone."""

import pytest
import torch

import denizen as dz
from denizen.errors import CapacityError
from denizen.model import plain
from denizen.run import Run, Snapshots
from denizen.zoo.covid import covid
from denizen.zoo.sir import SIR

pytestmark = pytest.mark.cuda
MODELS = {
    "sir": SIR(dz.Graph.from_edges(dz.space.generators.erdos_renyi(20_001, 8.0, seed=1)), seed_share=0.01),
    "covid": covid(dz.population.synthetic("astoria", 601), symmetrize=True, sample_deaths=True, isolation=0.2, R=20.0),
}
STEPS = 70


def by_hand(model: dz.Model, every: int, worlds: int) -> dict[int, dict[str, torch.Tensor]]:
    """Of a run on the CPU that is halted for each."""
    run, taken = dz.simulate(model, 0, replicates=worlds, seed=3), {}
    for step in range(STEPS + 1):
        if step:
            run.extend(1)
        if step % every == 0:
            taken[step] = {name: plain(getattr(run.state, name)).clone() for name in run.state.kinds}
    return taken


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("every", "slots"), [(1, 1), (2, None), (3, 2), (33, None)])
def test_along_the_run_equals_by_hand(name: str, compiled: bool, every: int, slots: int | None) -> None:
    wanted = Snapshots(every, slots=slots)
    run: Run = dz.simulate(MODELS[name], STEPS, replicates=2, seed=3, snapshots=wanted, device="cuda", compile=compiled)
    assert run.stats()["path"] == ("captured" if compiled else "eager")
    for step, fields in by_hand(MODELS[name], every, 2).items():
        taken = run.snapshots.at(step)
        for field, values in fields.items():
            assert taken[field].device.type == "cpu"
            assert torch.equal(taken[field], values), (step, field)


class Herd(dz.State):
    """A mask, a count and a real number."""

    alive: torch.Tensor = dz.mask("agents")
    age: torch.Tensor = dz.count("agents")
    weight: torch.Tensor = dz.real("agents")


class Farm(dz.Model):
    """Grows older and heavier."""

    num_agents: int = 10_001
    growth: torch.Tensor = dz.param(0.01)

    def init(self, rng: dz.rng.Rng) -> Herd:
        """Half of them alive."""
        alive = rng.bernoulli("alive", 0.5)
        return Herd(alive=alive, age=0 * alive, weight=rng.uniform("weight", 1.0, 2.0))

    def step(self, now: Herd, rng: dz.rng.Rng) -> Herd:
        """One step."""
        alive = now.alive * (1 - rng.event("death", 0.02))
        return now.replace(alive=alive, age=now.age + alive, weight=now.weight * (1 + self.growth))


NARROW = {"alive": None, "age": torch.uint8, "weight": torch.bfloat16}


@pytest.mark.parametrize("compiled", [False, True])
def test_narrow_on_the_device_as_on_the_host(compiled: bool) -> None:
    options = {"replicates": 2, "snapshots": Snapshots(7, NARROW)}
    host = dz.simulate(Farm(), STEPS, **options)
    device = dz.simulate(Farm(), STEPS, device="cuda", compile=compiled, **options)
    for name in ("alive", "age"):
        assert torch.equal(host.snapshots[name], device.snapshots[name])
    torch.testing.assert_close(host.snapshots["weight"], device.snapshots["weight"], rtol=2**-7, atol=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_does_not_fit(compiled: bool) -> None:
    with pytest.raises(CapacityError, match="'age' has int32 values that int8 cannot hold"):
        dz.simulate(Farm(), 200, snapshots=Snapshots(50, {"age": torch.int8}), device="cuda", compile=compiled)


def test_buffers_are_pinned_and_steps_do_not_wait(no_waits) -> None:
    run = dz.simulate(MODELS["sir"], 40, snapshots=Snapshots(8), device="cuda", compile=True)
    run.extend(64)
    store, capture, run_state = run._snapshots, run._capture, run._run_state.clone()
    assert all(slot.buffer.is_pinned() for slot in run._snapshots.ring._free)
    with no_waits():
        capture.run(run_state, 64, run.steps, store)  # copies, events, streams: nothing that waits for the device
        store.put(run.steps + 72, run.state)
    store.drop(run.steps)


def test_graphs_put_together_and_leave_the_state_as_it_was() -> None:
    run = dz.simulate(MODELS["sir"], 8, seed=3, snapshots=Snapshots(2), device="cuda", compile=True)
    ring = run._snapshots.ring
    assert ring.most == 32
    for steps, puts in ((64, 1), (128, 1), (20, 1), (64 * 11, 2)):  # eight groups of 32 to a buffer
        before = ring.puts, ring.entries
        run.extend(steps)
        assert (ring.puts - before[0], ring.entries - before[1]) == (puts, steps // 2)
    for step, fields in by_hand(MODELS["sir"], 20, 1).items():
        assert torch.equal(run.snapshots.at(step)["stage"], fields["stage"]), step


def test_graphs_are_captured_while_another_thread_waits_for_snapshots() -> None:
    run = dz.simulate(MODELS["sir"], 8, snapshots=Snapshots(1, slots=1), device="cuda", compile=True)
    for steps in (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31):  # new lengths, and small buffers
        run.extend(steps)
    whole = dz.simulate(MODELS["sir"], run.steps, snapshots=Snapshots(1), device="cuda", compile=False)
    assert torch.equal(run.snapshots["stage"], whole.snapshots["stage"])
