"""The kernels of the message steps equal their plain form: by Triton's interpreter on the CPU, and on a GPU.

Triton decides at import whether it interprets, hence the process that runs this file again.
"""

import collections
import copy
import importlib.util
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from denizen import ops
from denizen.errors import ModelError
from denizen.nn import DynamicDotGAT, DynamicDotGATReference, SmallWorld, _dynamic
from denizen.nn.kernels import _message_steps

from .configurations import random_model, small, some_sensing

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process")),
    pytest.param("cuda", marks=pytest.mark.cuda),
]
EPS = 1e-6
CASES = {  # agents, samples, times, width, heads, steps, rate, memory, talk
    "all": (5, 2, 7, 32, 2, 2, 0.1, True, True),
    "several tiles": (3, 4, 20, 16, 1, 1, 0.5, True, True),
    "many agents": (17, 1, 3, 32, 1, 1, 0.0, True, True),
    "no memory": (5, 2, 7, 32, 2, 2, 0.1, False, True),
    "mlp alone": (1, 2, 7, 32, 2, 2, 0.1, False, False),
    "nobody talks": (1, 2, 7, 32, 2, 2, 0.1, True, False),
}


@pytest.fixture(autouse=INTERPRETED)
def _interpreter(monkeypatch):
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def with_indices(tensor, scope):
        """Triton 3.6 makes int() of arrays of one element, which NumPy refuses since 2.4."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_indices)
    with warnings.catch_warnings():  # NumPy warns where lanes that are masked out compute inf - inf
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def launched(monkeypatch):
    """How often each kernel was interpreted."""
    from triton.runtime import interpreter

    run, counts = interpreter.InterpretedFunction.run, collections.Counter()

    def noted(kernel, *args, **named):
        counts[kernel.fn.__name__] += 1
        return run(kernel, *args, **named)

    monkeypatch.setattr(interpreter.InterpretedFunction, "run", noted)
    return counts


def some_case(name, device, dtype=torch.float32):
    """(h, weights, seed, the sizes that the operation takes)."""
    agents, samples, times, width, heads, steps, rate, memory, talk = CASES[name]
    torch.manual_seed(0)

    def some(*shape, around=0.0):
        return (around + 0.3 * torch.randn(*shape)).to(device)

    weights = [some(width, around=1), some(agents, width, 3 * width), some(width, around=1)]
    weights += [some(agents, width, 3 * width), some(agents, agents), some(width, around=1)]
    weights += [some(agents, width, width), some(agents, width), some(agents, width, width), some(agents, width)]
    if agents > 1:
        weights[4][0, 1] = -torch.inf
    weights = [None if (i < 2 and not memory) or (1 < i < 5 and not talk) else w for i, w in enumerate(weights)]
    seed = torch.tensor([123_456_789], device=device) if rate else None
    h = torch.randn(agents, samples * times, width).to(device, dtype)
    return h, weights, seed, (times, heads, steps, rate, EPS)


def gradients(function, h, weights):
    """What a function gives, and the gradients of everything that goes into it."""
    h = h.clone().requires_grad_()
    weights = [None if w is None else w.clone().requires_grad_() for w in weights]
    out = function(h, weights)
    place = torch.arange(out.numel(), device=h.device).view_as(out)
    (out.to(torch.promote_types(out.dtype, torch.float32)).sin() * place.cos()).sum().backward()
    return [out.detach(), h.grad, *(w.grad for w in weights if w is not None)]


def relative(found, expected):
    expected = expected.double().nan_to_num()
    return float((found.double().nan_to_num() - expected).norm() / expected.norm())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_the_plain_form(name, device):
    h, weights, seed, sizes = some_case(name, device)
    found = gradients(lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0], h, weights)
    exact = [None if w is None else w.double() for w in weights]
    truth = gradients(lambda h, weights: _message_steps.plain_steps(h, weights, seed, *sizes), h.double(), exact)
    for one, other in zip(found, truth, strict=True):
        assert relative(one, other) < 1e-4
    with torch.no_grad():  # what is not kept for a backward changes nothing
        assert torch.equal(_message_steps.message_steps(h, *weights, seed, *sizes, False)[0], found[0])


@pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process")
def test_work_aside_may_come_as_late_as_it_wants(monkeypatch):
    """Gradients of weights run beside the rest in a CUDA graph: right whenever what they read is still what it was."""
    from denizen.nn.kernels import _cuda_message_steps

    h, weights, seed, sizes = some_case("all", "cpu")
    run = lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0]
    expected = gradients(run, h, weights)
    waiting = []

    class Late(_cuda_message_steps.Inline):
        rooms = _cuda_message_steps.Aside.rooms

        def run(self, room, work):
            waiting.append((room, work))

        def free(self, room):
            while any(one == room for one, _ in waiting):  # one stream: what came before is done as well
                waiting.pop(0)[1]()

        def join(self):
            assert len(waiting) > 1
            while waiting:
                waiting.pop(0)[1]()

    monkeypatch.setattr(_cuda_message_steps, "Inline", Late)
    for one, other in zip(gradients(run, h, weights), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
def test_a_program_may_make_all_parts(device, monkeypatch):
    from denizen.nn.kernels import _cuda_message_steps

    h, weights, seed, sizes = some_case("all", device)
    found = []
    for parts in (1, 3):
        monkeypatch.setitem(_cuda_message_steps.TILES, "project", {"ROWS": 32, "PARTS": parts, "num_warps": 4})
        found.append(_message_steps.message_steps(h, *weights, seed, *sizes, False)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits(device, dtype):
    if dtype is torch.bfloat16 and device == "cpu":
        pytest.skip("the interpreter multiplies the bits of bfloat16 as whole numbers")
    h, weights, seed, sizes = some_case("all", device, dtype)
    found = gradients(lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0], h, weights)
    exact = [None if w is None else w.double() for w in weights]
    truth = gradients(lambda h, weights: _message_steps.plain_steps(h, weights, seed, *sizes), h.double(), exact)
    assert found[0].dtype == found[1].dtype == dtype
    for one, other in zip(found, truth, strict=True):
        assert relative(one, other) < (0.03 if dtype is torch.float16 else 0.2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("changes", [{}, {"shared_v": False}, {"social": None}], ids=str)
def test_the_fast_network_takes_them(changes, again, device, monkeypatch):
    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    monkeypatch.setattr(_dynamic, "fits", lambda h, times, heads: True)
    config = small(**{"hidden": 32, "social": SmallWorld(neighbours=2), **changes})
    reference = random_model(DynamicDotGATReference, config, some_sensing(config), dtype=torch.float32).to(device)
    fast = DynamicDotGAT.from_reference(reference, checkpoint_steps=again)
    series = torch.randn(2, 7, 4, device=device)
    for model in (reference, fast):
        h, y = model(series)
        (h.sin().sum() + y.square().sum()).backward()
    torch.testing.assert_close(fast(series).outputs, reference(series).outputs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fast.embed.grad, reference.embed.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_recomputed_steps_drop_the_same_units(device, monkeypatch):
    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    monkeypatch.setattr(_dynamic, "fits", lambda h, times, heads: True)
    model = random_model(DynamicDotGAT, small(hidden=32, dropout=0.3), dtype=torch.float32).to(device).train()
    series, found = torch.randn(2, 7, 4, device=device), []
    for model.checkpoint_steps in (False, True):
        torch.manual_seed(5)
        model.zero_grad()
        outputs = model(series).outputs
        outputs.square().sum().backward()
        found.append([outputs.detach(), *(weight.grad for weight in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert torch.equal(found[0][0], found[1][0])


@pytest.mark.skipif(INTERPRETED, reason="needs no kernels")
def test_every_forward_and_every_step_drops_units_of_its_own(monkeypatch):
    asked = []
    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    monkeypatch.setattr(_dynamic, "fits", lambda h, times, heads: True)
    monkeypatch.setattr(_dynamic, "message_steps", lambda h, *rest: asked.append((rest[10], rest[13])) or [h])
    model, series = DynamicDotGAT(small(dropout=0.3, message_steps=3)).train(), torch.randn(2, 7, 4)
    for _ in range(2):
        model(series)
    (first, number), (second, _) = asked
    assert number == 3
    assert first != second
    asked.clear()
    model.checkpoint_steps = True
    model(series)
    seeds = [int(seed) - int(asked[0][0]) for seed, _ in asked]
    assert seeds == [0, 3, 6]  # a seed and the sublayer's number within a call make what is dropped
    asked.clear()
    model.eval()(series)
    assert {seed for seed, _ in asked} == {None}


@pytest.mark.parametrize("device", DEVICES)
def test_worlds_are_samples(device):
    h, weights, _, (times, heads, steps, _, eps) = some_case("all", device)
    worlds = torch.stack([h, h.flip(1), -h])
    rest = (*weights[1:], None, times, heads, steps, 0.0, eps, False)
    run_with = lambda gain, h: _message_steps.message_steps(h, gain, *rest)[0]
    run = lambda h: run_with(weights[0], h)
    with torch.no_grad():
        found, expected = torch.vmap(run)(worlds), torch.stack([run(h) for h in worlds])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        with pytest.raises(ModelError, match="differ between worlds"):
            torch.vmap(lambda gain: run_with(gain, h))(torch.stack([weights[0]] * 3))


@pytest.mark.parametrize("device", DEVICES)
def test_worlds_drop_different_units(device):
    h, weights, _, (times, heads, steps, _, eps) = some_case("all", device)

    def run(h):
        seed = torch.randint(2**31, (1,), device=device)
        return _message_steps.message_steps(h, *weights, seed, times, heads, steps, 0.5, eps, False)[0]

    with torch.no_grad():
        for found in (
            torch.vmap(run, randomness="different")(torch.stack([h, h])),
            torch.vmap(lambda _: run(h), randomness="different")(torch.zeros(2, device=device)),
        ):
            assert found.isfinite().all()
            assert not torch.equal(found[0], found[1])


@pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process")
def test_launches(launched):
    """Five for a step forward and eight back: nothing but these and the casts of four matrices touches the rows."""
    h, weights, seed, sizes = some_case("all", "cpu")
    out = gradients(lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0], h, weights)
    steps = sizes[2]
    assert launched == {
        "_project_kernel": 2 * steps,
        "_remember_kernel": steps,
        "_talk_kernel": steps,
        "_think_kernel": steps,
        "_think_backward_kernel": steps,
        "_talk_backward_kernel": steps,
        "_remember_backward_kernel": steps,
        "_project_backward_kernel": 2 * steps,
        "_weight_gradient_kernel": 3 * steps,
    }
    assert len(out) == 12


def test_dropout_is_even_and_independent():
    ones, rate = torch.ones(200, 500), 0.1
    masks = [
        _message_steps.dropped(ones, torch.tensor([seed]), layer, rate) > 0
        for seed in (0, 1000, 2**31 - 1)
        for layer in (0, 1, 7)
    ]
    for mask in masks:
        assert mask.float().mean() == pytest.approx(1 - rate, abs=0.005)
        assert float(mask.float().mean(0).std()) < 0.03
    for i, mask in enumerate(masks):
        for other in masks[:i]:
            both = (~mask & ~other).float().mean()
            assert both == pytest.approx(rate**2, abs=0.002)
    kept = _message_steps.dropped(ones, torch.tensor([3]), 0, rate)
    assert float(kept.max()) == pytest.approx(1 / (1 - rate), rel=1e-6)


def test_what_the_kernels_take():
    def ask(agents=20, rows=64, width=128, times=64, heads=4, dtype=torch.bfloat16):
        return _message_steps.fits(torch.empty(agents, rows, width, dtype=dtype, device="meta"), times, heads)

    assert ask()
    assert ask(times=None, rows=10_000)
    for refused in (
        {"dtype": torch.float32},
        {"rows": 0},
        {"agents": 65},
        {"width": 256},
        {"width": 96},
        {"heads": 16},
        {"heads": 1},
        {"times": 129},
    ):
        assert not ask(**refused), refused


@pytest.mark.parametrize(("capability", "there"), [((9, 0), True), ((7, 5), False)])
def test_where_the_kernels_run(capability, there, monkeypatch):
    monkeypatch.setattr(_message_steps, "variant", lambda device: "triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert _message_steps.available(torch.device("cuda")) is there
    assert not _message_steps.available(torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_who_is_asked(dtype, monkeypatch):
    """Sixteen bits on a device with kernels take the operation, in one graph and in training as in evaluation."""
    asked = []

    def noted(h, *rest):
        asked.append(h.dtype)
        return [h]

    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    monkeypatch.setattr(_dynamic, "message_steps", noted)
    model = DynamicDotGAT(small(hidden=32))
    with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
        model(torch.randn(2, 7, 4))
    assert asked == ([] if dtype is torch.float32 else [dtype])
    model.drop = nn.Identity()
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.randn(2, 7, 4))
    assert len(asked) == (dtype is not torch.float32)


def test_what_is_no_plain_layer_is_not_fused(monkeypatch):
    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    monkeypatch.setattr(_dynamic, "message_steps", lambda *args: pytest.fail("was asked"))
    model = DynamicDotGAT(small(hidden=32)).bfloat16()
    model.mlp.outer = nn.Sequential(model.mlp.outer)
    model(torch.randn(2, 7, 4, dtype=torch.bfloat16))


def test_a_copy_on_another_device_asks_again(monkeypatch):
    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    model = DynamicDotGAT(small())
    monkeypatch.setattr(_dynamic, "available", lambda device: False)
    assert model._has_kernels
    assert not copy.deepcopy(model)._has_kernels


@pytest.mark.parametrize("device", DEVICES)
def test_derivatives_that_the_kernels_lack(device):
    h, weights, seed, sizes = some_case("several tiles", device)
    run = lambda h: _dynamic.message_steps(h, *weights, seed, *sizes, True)[0]
    with forward_ad.dual_level(), pytest.raises(ModelError, match="forward-mode"):
        run(forward_ad.make_dual(h, torch.ones_like(h)))
    h.requires_grad_()
    (slope,) = torch.autograd.grad(run(h).sum(), h, create_graph=True)
    with pytest.raises(ModelError, match="no second derivatives"):
        slope.square().sum().backward()


def test_second_derivatives_without_kernels():
    series = torch.randn(2, 5, 4, requires_grad=True)
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        (slope,) = torch.autograd.grad(DynamicDotGAT(small())(series).outputs.sum(), series, create_graph=True)
    slope.square().sum().backward()
    assert series.grad.isfinite().all()


@pytest.mark.parametrize("again", [False, True])
def test_one_graph(again, monkeypatch):
    monkeypatch.setattr(_dynamic, "available", lambda device: True)
    model = DynamicDotGAT(small(hidden=32), checkpoint_steps=again).train()
    graphs = []

    def seen(graph, inputs):
        graphs.append(graph)
        return lambda *args: (args[0], args[0])  # in place of states and outputs: there is no device to run on

    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        torch.compile(model, fullgraph=True, dynamic=False, backend=seen)(torch.randn(2, 7, 4))
    assert len(graphs) == 1
    codes = [module.code for module in graphs[0].modules() if isinstance(module, torch.fx.GraphModule)]
    assert sum(code.count("denizen.message_steps") for code in codes) >= 1


def test_shapes_are_known_without_running():
    for name in CASES:
        h, weights, seed, sizes = some_case(name, "meta") if name == "many agents" else some_case(name, "cpu")
        moved = [None if w is None else w.to("meta") for w in weights]
        seed = None if seed is None else seed.to("meta")
        out, between, qkvs, *matrices = _message_steps.message_steps(h.to("meta"), *moved, seed, *sizes, True)
        for i, matrix in zip((1, 3, 6, 8), matrices, strict=True):
            assert matrix.shape == (torch.Size([0]) if weights[i] is None else weights[i].shape)
        layers = sizes[2] * (1 + (weights[1] is not None) + (weights[3] is not None))
        assert out.shape == h.shape
        assert between.shape[0] == layers - 1
        assert qkvs.shape == (layers - sizes[2], *h.shape[:2], 3 * h.shape[2])


def interpret(*picked):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--color=no", "-o", "addopts="]
    command += ["--import-mode=importlib", "-m", "not cuda", __file__, *picked]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


outside = pytest.mark.skipif(INTERPRETED, reason="the interpreter runs already")
missing = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@missing
@outside
def test_kernels_by_the_interpreter():
    interpret("-k", "plain_form and all")


@missing
@outside
@pytest.mark.slow
def test_kernels_by_the_interpreter_at_length():
    interpret()


@pytest.mark.cuda
def test_autocast_takes_the_kernels(monkeypatch):
    asked, real = [], _dynamic.message_steps
    monkeypatch.setattr(_dynamic, "message_steps", lambda h, *rest: (asked.append(h.dtype), real(h, *rest))[1])
    model = DynamicDotGAT(small(hidden=32)).cuda()
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype):
            model(torch.randn(2, 7, 4, device="cuda")).outputs.float().sum().backward()
    assert asked == [torch.float16, torch.bfloat16]


@pytest.mark.cuda
def test_a_device_that_is_not_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device")
    h, weights, seed, sizes = some_case("all", "cuda:1", torch.bfloat16)
    assert torch.cuda.current_device() == 0
    found = gradients(lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0], h, weights)
    h, weights, seed, _ = some_case("all", "cuda:0", torch.bfloat16)
    expected = gradients(
        lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0], h, weights
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.cpu(), other.cpu())


@pytest.mark.cuda
def test_replays_drop_different_units():
    config = small(hidden=32, dropout=0.5)
    model = random_model(DynamicDotGAT, config, dtype=torch.float32).cuda().train()
    series = torch.randn(3, 7, 4, device="cuda")
    assert ops.variant(series.device) == "triton"
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        with torch.cuda.stream(side):
            model(series)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            outputs = model(series).outputs
    graph.replay()
    first = outputs.clone()
    graph.replay()
    assert not torch.equal(first, outputs)


@pytest.mark.cuda
def test_a_recorded_backward_is_the_eager_one():
    """In a graph the gradients of weights run in a stream of their own."""
    h, weights, seed, sizes = some_case("all", "cuda", torch.bfloat16)
    run = lambda h, weights: _message_steps.message_steps(h, *weights, seed, *sizes, True)[0]
    expected, side = gradients(run, h, weights), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        gradients(run, h, weights)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = gradients(run, h, weights)
    for _ in range(3):
        graph.replay()
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one, other)
