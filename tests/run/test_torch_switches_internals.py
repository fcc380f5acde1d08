"""What is compiled once stays compiled: torch's switches change between warm-up and capture, and nothing comes of it.

Streams and graphs of CUDA are played on the CPU: what is captured runs at once, and the replay after it does nothing.
"""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import denizen as dz
from denizen.perf.watch import graphs_compiled
from denizen.relax import StraightThrough
from denizen.rl import _training
from denizen.run import Gradient, Run, Snapshots, TorchSwitches, _compile, _engine
from denizen.studies.foraging import evaluate
from denizen.zoo import dotgat
from denizen.zoo.cartpole import CartPole
from denizen.zoo.dotgat.step import Step
from denizen.zoo.fruits import fruits
from denizen.zoo.sir import SIR, sir


class Cuda:
    """Attributes:
    within: graphs that torch compiled within captures.
    captures: begun.
    broken: this many captures fail, with an error such as CUDA's.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.within = self.captures = self.broken = 0
        self._capturing = False

        class Stream:
            def wait_stream(self, other: Any) -> None: ...

        @contextlib.contextmanager
        def stream(one: Any) -> Iterator[None]:
            yield

        @contextlib.contextmanager
        def graph(graph: Any, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
            assert capture_error_mode == "thread_local"
            self.captures += 1
            before, self._capturing = graphs_compiled(), True
            try:
                if self.broken:
                    self.broken -= 1
                    raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nand more")
                yield
            finally:
                self.within += graphs_compiled() - before
                self._capturing = False

        class CUDAGraph:
            def replay(self) -> None: ...

        default = Stream()
        fakes = {
            "Stream": Stream,
            "stream": stream,
            "graph": graph,
            "CUDAGraph": CUDAGraph,
            "synchronize": lambda *_: None,
            "current_stream": lambda *_: default,
            "default_stream": lambda *_: default,
            "graph_pool_handle": lambda: (0, 1),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(_engine, "_capturing", lambda: self._capturing)
        monkeypatch.setattr(_compile, "BACKEND", "eager")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    return Cuda(monkeypatch)


class Passing(TorchFunctionMode):
    """A mode of some other library."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _set(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = read()
    assert value != before
    write(value)
    try:
        yield
        assert read() == value  # what was held within was put back
    finally:
        write(before)


@contextlib.contextmanager
def _hooked() -> Iterator[None]:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: None)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _newer_precision() -> Iterator[None]:
    """The newer of torch's two switches, after which the older one cannot be read."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        yield
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


_CUBLAS = torch.backends.cuda.matmul
CHANGES: dict[str, Callable[[], Any]] = {
    "threads": lambda: _set(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 3),
    "grad": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": lambda: _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": lambda: _set(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "precision": lambda: _set(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "newer precision": _newer_precision,
    "half sums": lambda: _set(
        lambda: _CUBLAS.allow_fp16_reduced_precision_reduction,
        lambda value: setattr(_CUBLAS, "allow_fp16_reduced_precision_reduction", value),
        False,
    ),
    "cudnn": lambda: _set(torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark, True),
    "mode": Passing,
    "no functions": torch._C.DisableTorchFunction,
    "default device": lambda: torch.device("cpu"),
    "hook": _hooked,
}


@contextlib.contextmanager
def all_at_once() -> Iterator[None]:
    with contextlib.ExitStack() as changes:
        for change in CHANGES.values():
            changes.enter_context(change())
        yield


def contacts() -> dz.Graph:
    return dz.Graph.from_edges(dz.space.generators.erdos_renyi(60, 6.0, seed=1))


def begun(steps: int = 2, **options: Any) -> Run:
    return dz.simulate(sir(contacts()), steps, replicates=2, compile=False, device="cpu", **options)


def captured(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Run:
    """A run that is captured from step 2 on; further steps come in numbers that it did not have yet."""
    run = begun(**options)
    run._compile = True
    with monkeypatch.context() as there:
        there.setattr(Run, "device", property(lambda run: torch.device("cuda")))
        run._compile_now()
    assert run._path == "captured"
    return run


def plain(steps: int) -> Tensor:
    return begun(steps)["cases"]


# --- the switches themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_every_switch_is_held_and_put_back(change: str) -> None:
    from torch._C._dynamo.guards import GlobalStateGuard

    settled = TorchSwitches(grad=True)
    wanted = GlobalStateGuard().__getstate__()
    with CHANGES[change]():
        with settled.held():
            assert GlobalStateGuard().__getstate__() == wanted
            assert not torch.is_inference_mode_enabled()
            assert not torch.overrides._get_current_function_mode_stack()
            assert not torch.nn.modules.module._has_any_global_hook()
        changed = GlobalStateGuard().__getstate__()
    assert GlobalStateGuard().__getstate__() == wanted
    if change not in ("inference", "cudnn", "mode", "default device", "hook", "grad"):
        assert changed != wanted


# --- simulations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["captured", "compiled"])
def test_a_run_goes_on_without_compiling_anew(path: str, cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number of steps that comes is a graph of its own, or steps that are compiled."""
    if path == "captured":
        run = captured(monkeypatch)
    else:
        run = begun()
        run._compile = True
        run.extend(1)
    assert run._path == path
    before, lengths = graphs_compiled(), iter(range(3, 30))
    for change in CHANGES.values():
        with change():
            run.extend(next(lengths))
        assert graphs_compiled() == before, change
    thread = threading.Thread(target=lambda: run.extend(next(lengths)))
    thread.start()
    thread.join()
    run.extend(next(lengths))
    assert (graphs_compiled(), run._path, cuda.within) == (before, path, 0)
    assert cuda.captures == (len(CHANGES) + 2 if path == "captured" else 0)
    assert torch.equal(run["cases"], plain(run.steps))


def test_a_run_that_began_in_inference_mode_goes_on_outside_and_a_second_compiles_its_own(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.inference_mode():
        run = captured(monkeypatch)
        run.extend(5)
    before = graphs_compiled()
    run.extend(7)
    assert graphs_compiled() == before
    second = captured(monkeypatch)
    second.extend(5)
    run.extend(9)
    assert graphs_compiled() - before == 2  # a step and what a chunk records
    assert cuda.within == 0
    assert torch.equal(run["cases"], plain(23))
    assert torch.equal(second["cases"], plain(7))


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_capture_that_fails_is_warmed_up_again_and_at_last_runs_eagerly(
    broken: int, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = captured(monkeypatch, snapshots=Snapshots(every=4))
    run.extend(2)
    cuda.broken = broken
    torch._dynamo.reset()  # by another library, say: the next capture would compile
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run.extend(3)
    run.extend(1)
    told = "steps could not be captured in a CUDA graph and run eagerly, with equal results: CUDA error: operation not "
    assert [str(one.message) for one in said] == [f"{told}permitted when stream is capturing"] * (broken == 2)
    assert run._path == ("eager" if broken == 2 else "captured")
    eager = begun(8, snapshots=Snapshots(every=4))
    assert torch.equal(run["cases"], eager["cases"])
    assert torch.equal(run.snapshots["stage"], eager.snapshots["stage"])


# --- gradients --------------------------------------------------------------------------------------------------------


def gradient() -> Gradient:
    whole = Gradient(
        SIR(contacts(), seed_share=0.2),
        lambda series: series["cases"].sum(),
        2,
        wrt=["infect_rate"],
        relax=StraightThrough(),
        replicates=2,
        compile=True,
        device="cpu",
    )
    whole._call.captures = True
    return whole


def test_a_gradient_is_captured_without_compiling_anew(cuda: Cuda) -> None:
    whole = gradient()
    first, slope = whole(), whole.gradients["infect_rate"].clone()
    before = graphs_compiled()
    with all_at_once():
        again = whole()
    assert (graphs_compiled(), cuda.captures, whole.path) == (before, 1, "captured")
    assert again == first
    assert torch.equal(whole.gradients["infect_rate"], slope)


def test_a_gradient_is_warmed_up_again_by_the_call_itself(cuda: Cuda) -> None:
    whole = gradient()
    first = whole()
    torch._dynamo.reset()  # by another library, say: the capture would compile
    whole.seed.add_(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other, kept = whole(), whole.series["cases"]
    assert (cuda.captures, whole.path) == (2, "captured")
    assert first != other == kept.sum()
    assert whole() == whole.series["cases"].sum()
    assert whole.series["cases"] is not kept  # that of the graph, from the first replay on


# --- trainings --------------------------------------------------------------------------------------------------------


def training(kind: str) -> Any:
    env: Any = CartPole() if kind == "ppo" else fruits()
    algorithm: Any = (
        dz.PPO(num_envs=4, num_steps=2, update_epochs=1, num_minibatches=1)
        if kind == "ppo"
        else dz.GRPO(groups=2, group_size=2, max_steps=2)
    )
    held = algorithm.init(env, dz.rl.mlp(env, (4,)), total_steps=algorithm.samples * 4, device="cpu")
    compile = held.compile
    held.compile = lambda backend="eager", loss=True: compile(backend, loss)
    return held


def weights(held: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in held.policy.parameters()])


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_a_training_compiles_once_and_warms_up_again_and_at_last_is_eager(
    kind: str, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_training, "variant", lambda device: "reference")
    eager, held = training(kind), training(kind)
    start = weights(held)
    eager.algorithm.update(eager)
    iteration = dz.rl.Updates(held, compile=True)
    iteration._device, iteration._compile_loss = torch.device("cuda"), True
    cuda.broken = 1
    with all_at_once(), warnings.catch_warnings():
        warnings.simplefilter("error")
        iteration.warm_up()
    assert (iteration.path, cuda.captures, cuda.within) == ("captured", 2, 0)
    assert torch.equal(weights(held), start)
    iteration._captured = None  # updates as a CPU makes them
    before = graphs_compiled()
    with all_at_once():
        iteration()
    assert graphs_compiled() == before
    assert torch.equal(weights(held), weights(eager))
    cuda.broken = 2
    with pytest.warns(UserWarning, match="run eagerly: CUDA error: operation not permitted") as said:
        iteration.warm_up()
    assert (iteration.path, len(said)) == ("eager", 1)
    assert torch.equal(weights(held), weights(eager))


# --- agents that talk, and agents that forage -------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("change", ["no grad", "inference"])
def test_a_step_of_dotgat_is_captured_or_eager(change: str, broken: int, cuda: Cuda) -> None:
    settings = dotgat.Settings(
        agents=4,
        features=4,
        times=8,
        rank=2,
        hidden=8,
        heads=2,
        neighbours=2,
        processes=10,
        batch=4,
        share=0.5,
        message_steps=1,
        precision="float32",
        dropout=0.0,
    )
    data = dotgat.draw(settings)
    batch = [(data.inputs["training"][:4], data.targets["training"][:4])]

    def made() -> Step:
        torch.manual_seed(0)
        model = dotgat.Answers(settings, data)
        return Step(settings, model, dotgat.Judge(settings, data), torch.device("cpu"))

    eager, whole = made(), made()
    whole._captures = True
    cuda.broken = broken
    told = pytest.warns(UserWarning, match="run eagerly, with equal results: CUDA error")
    with CHANGES[change](), told if broken == 2 else contextlib.nullcontext():
        loss = whole(batch)
    assert (whole._graph.captured is False, cuda.captures) == (broken == 2, min(broken, 1) + 1)
    if broken == 2:  # else a stand-in's replay has done nothing
        assert [loss, whole(batch)] == [eager(batch), eager(batch)]


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_foraging_takes_every_step_once(broken: int, cuda: Cuda) -> None:
    buffers = [torch.zeros(3, dtype=torch.int64)]
    cuda.broken = broken
    steps = (2 + min(broken, 1)) * evaluate.CHUNK + 5  # with the one replay that a stand-in can make
    told = pytest.warns(UserWarning, match="run eagerly, with equal results: CUDA error")
    with told if broken == 2 else contextlib.nullcontext():
        evaluate._repeat(lambda tensors: [tensors[0] + 1], buffers, steps, torch.device("cuda"))
    assert buffers[0].tolist() == [steps] * 3


# --- who else is there ------------------------------------------------------------------------------------------------


def test_what_an_intervention_asks_has_the_switches_of_who_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may learn there, also once the step is compiled."""
    monkeypatch.setattr(_compile, "BACKEND", "eager")
    seen = []

    def answer(group: str, step: int) -> float:
        seen.append((torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()))
        return 0.05

    ask = dz.model.Ask(target="infect_rate", groups=["all"], answer=answer)
    run = dz.simulate(SIR(contacts()), 3, interventions=[ask], compile=True, device="cpu")
    assert run._path == "compiled"
    with CHANGES["threads"](), CHANGES["default dtype"]():
        here = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
        run.extend(2)
    with torch.no_grad():
        run.extend(1)
    assert seen[3:5] == [here] * 2
    assert [grad for grad, *_ in seen] == [True] * 5 + [False]


def test_threads_that_hold_different_switches_leave_those_of_the_process() -> None:
    """Whatever the order in which they begin and end; what one of them sets within stays."""
    states = []
    for dtype in (torch.float64, torch.bfloat16):
        with _set(torch.get_default_dtype, torch.set_default_dtype, dtype):
            states.append(TorchSwitches(grad=False))

    def held(settled: TorchSwitches, begun: threading.Event, end: threading.Event) -> None:
        with settled.held():
            begun.set()
            end.wait()

    for first in (0, 1):
        ends = [threading.Event(), threading.Event()]
        threads = []
        for settled, end in zip(states, ends, strict=True):
            begun = threading.Event()
            threads.append(threading.Thread(target=held, args=(settled, begun, end)))
            threads[-1].start()
            begun.wait()
        for place in (first, 1 - first):
            ends[place].set()
            threads[place].join()
        assert torch.get_default_dtype() == torch.float32
    with states[0].held(), states[1].held(), states[0].held():
        assert torch.get_default_dtype() == torch.float64
    with CHANGES["cudnn"](), states[0].held():
        torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    assert torch.get_default_dtype() == torch.float32
