"""Is my faster model the same model?"""

import copy
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from denizen import perf
from denizen.errors import InputError

_spec = importlib.util.spec_from_file_location("dotgat_small", Path(__file__).with_name("dotgat_small.py"))
dotgat = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(dotgat)


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


class Separate(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.norm, self.out = nn.BatchNorm1d(7), nn.Linear(width, 4)

    def qkv_of(self, x):
        return self.q(x), self.k(x), self.v(x)

    def forward(self, x):
        y = F.scaled_dot_product_attention(*self.qkv_of(x))
        return self.out(F.dropout(self.norm(x + y), 0.1, self.training))


class Joined(Separate):
    def __init__(self, width=16):
        super().__init__(width)
        del self.q, self.k, self.v
        self.qkv = nn.Linear(width, 3 * width)

    def qkv_of(self, x):
        return self.qkv(x).chunk(3, -1)


JOIN = {f"qkv.{kind}": [f"{name}.{kind}" for name in "qkv"] for kind in ("weight", "bias")}


def batch(*shape):
    return torch.randn(shape or (3, 7, 16))


def test_a_copy_is_equal_bit_for_bit():
    a = Separate()
    verdict = perf.equivalent(a, copy.deepcopy(a), batch())
    assert verdict.level == "bit-equal"
    assert verdict.passed
    assert verdict.steps == 3
    assert verdict.first is None


def test_joined_projections_pass_with_dropout_and_batch_norm():
    verdict = perf.equivalent(Separate(), Joined(), [batch(), batch()], weights=JOIN)
    assert verdict.passed, verdict
    names = {one.name for one in verdict.compared}
    assert {"output", "loss", "gradient of qkv.weight", "norm.running_mean after the step"} <= names


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_fused_agent_attention_passes_and_the_published_one_fails(dropout):
    a = dotgat.Reference(dropout=dropout)
    fused, published = dotgat.Fused(dropout=dropout), dotgat.Published(dropout=dropout)
    x = batch(2, 5, 4)
    assert perf.equivalent(a, fused, x, weights=dotgat.fuse, steps=5).passed
    verdict = perf.equivalent(a, published, x, weights=dotgat.fuse)
    assert not verdict.passed
    assert verdict.first.name == "output[0]"
    assert verdict.first.step == 0
    assert verdict.first.relative_norm > 0.1
    assert verdict.first.share_outside > 0.9


def lost_bias(model):
    model.b1.data.zero_()
    model.b1.requires_grad_(False)
    model.mlp = lambda u: dotgat.Reference.mlp(model, u) - 0.001 * model.b2


def no_activation(model):
    model.mlp = lambda u: torch.einsum("btah,ahk,akl->btal", u, model.w1, model.w2) + model.b2


def other_shared_v(model):
    model.project = lambda u, part: [*dotgat.Reference.project(model, u, part)[:2], u @ model.v_m]


@pytest.mark.parametrize("spoil", [lost_bias, no_activation, other_shared_v])
def test_other_faults_fail_too(spoil):
    a, b = dotgat.Reference(), dotgat.Reference()
    spoil(b)
    assert not perf.equivalent(a, b, batch(2, 5, 4)).passed


def test_a_gradient_that_is_cut_is_told_by_name():
    class Cut(Separate):
        def qkv_of(self, x):
            return self.q(x), self.k(x).detach(), self.v(x)

    verdict = perf.equivalent(Separate(), Cut(), batch())
    assert verdict.first.name == "gradient of k.weight"
    assert verdict.first.step == 1
    assert verdict.first.why == "no gradient (None) in b"
    assert "b has no gradient (None) for k.weight; a has one" in verdict.notes


def test_a_tiny_gradient_that_is_missing_is_no_rounding():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 1e-7

    class Cut(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight.detach(), self.bias) * 1e-7

    verdict = perf.equivalent(Scaled(4, 4), Cut(4, 4), batch(5, 4))
    assert verdict.first.name == "gradient of weight"


def test_what_only_training_shows_is_told_with_its_step():
    class Drifting(nn.Linear):
        calls = 0

        def forward(self, x):
            if self.training:
                self.calls += 1
            return super().forward(x) + (0.01 if self.calls == 3 else 0.0)

    verdict = perf.equivalent(nn.Linear(4, 4), Drifting(4, 4), batch(5, 4))
    assert (verdict.first.name, verdict.first.step) == ("output", 3)


def test_the_first_module_that_differs_is_named():
    class Leaky(nn.Module):
        def forward(self, x):
            return F.leaky_relu(x)

    a = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    b = nn.Sequential(nn.Linear(4, 4), Leaky(), nn.Linear(4, 4))
    assert perf.equivalent(a, b, batch(9, 4)).module == "1"


def test_another_number_of_draws_is_a_difference_unless_it_may_be():
    class Wasteful(nn.Linear):
        def forward(self, x):
            torch.rand(1)
            return super().forward(x)

    pair = nn.Linear(4, 4), Wasteful(4, 4)
    assert perf.equivalent(*pair, batch(5, 4)).first.name == "random numbers"
    assert perf.equivalent(*pair, batch(5, 4), same_draws=False).level == "bit-equal"


def test_nothing_has_happened_afterwards():
    a, b, x = Separate(), Joined().eval(), batch()
    before = copy.deepcopy([a.state_dict(), b.state_dict()])
    drawn = torch.get_rng_state()
    perf.equivalent(a, b, x, weights=JOIN)
    for old, module in zip(before, (a, b), strict=True):
        assert all(torch.equal(old[name], tensor) for name, tensor in module.state_dict().items())
        assert all(weight.grad is None for weight in module.parameters())
    assert torch.equal(drawn, torch.get_rng_state())
    assert a.training
    assert not b.training


def test_weights_by_order_by_names_and_what_cannot_be_told():
    a, b = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.ModuleDict({"only": nn.Linear(4, 3)})
    b.forward = lambda x: b["only"](x).relu()
    assert perf.equivalent(a, b, batch(5, 4)).mapping.startswith("by order")
    names = {"only.weight": "0.weight", "only.bias": "0.bias"}
    assert perf.equivalent(a, b, batch(5, 4), weights=names).passed
    with pytest.raises(InputError, match=r"only a has .*q\.weight \[16, 16\].* only b has qkv\.weight \[48, 16\]"):
        perf.equivalent(Separate(), Joined(), batch())
    with pytest.raises(InputError, match=r"a has no nothing\.here"):
        perf.equivalent(a, b, batch(5, 4), weights={"only.weight": "nothing.here"})
    with pytest.raises(InputError, match="b has no nothing"):
        perf.equivalent(a, b, batch(5, 4), weights={"nothing": "0.weight"})
    with pytest.raises(InputError, match=r"only.weight is \[3, 4\] in b, and what would be put there \[6, 4\]"):
        perf.equivalent(a, b, batch(5, 4), weights={**names, "only.weight": ["0.weight", "0.weight"]})


def test_low_precision_is_held_against_float64():
    a = Separate().bfloat16()
    assert perf.equivalent(a, Joined().bfloat16(), batch().bfloat16(), weights=JOIN).passed

    class Coarse(Separate):  # eight bits less than the reference
        def forward(self, x):
            return super().forward((x * 8).round() / 8)

    assert not perf.equivalent(Separate().bfloat16(), Coarse().bfloat16(), batch().bfloat16()).passed


def test_functions_are_compared_with_the_gradients_of_their_inputs():
    x = torch.randn(50, requires_grad=True)
    assert perf.equivalent(torch.sigmoid, lambda x: 1 / (1 + (-x).exp()), x).passed
    verdict = perf.equivalent(torch.sigmoid, lambda x: torch.sigmoid(x.detach()) + 0 * x, x)
    assert verdict.first.name == "gradient of input 0"


def test_integers_are_exact_and_nan_is_equal_when_asked():
    counts = torch.arange(5)
    assert perf.equivalent(lambda n: n * 2, lambda n: n + n, counts).level == "bit-equal"
    assert not perf.equivalent(lambda n: n * 2, lambda n: n * 2 + 1, counts).passed
    x = torch.tensor([0.0, 1.0])
    assert not perf.equivalent(lambda x: x / x, lambda x: x / x, x).passed
    assert perf.equivalent(lambda x: x / x, lambda x: x / x, x, equal_nan=True).passed


def test_writing_to_an_input_is_a_difference():
    verdict = perf.equivalent(lambda x: x + 1, lambda x: x.add_(1), torch.zeros(3))
    assert verdict.first.name == "input 0 after the call"


def test_compiled_candidates_keep_their_names():
    a = Separate()
    b = torch.compile(copy.deepcopy(a), backend="eager")
    assert perf.equivalent(a, b, batch()).passed


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: perf.equivalent(a, Separate, batch()), "b=<class"),
        (lambda a: perf.equivalent(a, a, batch()), "same object"),
        (lambda a: perf.equivalent(a, torch.exp, batch()), "two modules, or two functions"),
        (lambda a: perf.equivalent(a, Separate(), batch(), steps=-1), "steps=-1"),
        (lambda a: perf.equivalent(a, Separate(), []), "at least one batch"),
        (lambda a: perf.equivalent(a, Separate(), 3), "inputs=3"),
        (lambda a: perf.equivalent(a, Separate(), batch(), tolerances={"float32": 1}), "tolerances"),
        (lambda a: perf.equivalent(a, Separate(), batch(), loss=lambda out: out), "tensor of one number"),
        (lambda a: perf.equivalent(a, Separate(), batch(2, 7, 5)), "a raised RuntimeError in evaluate"),
    ],
)
def test_wrong_arguments_are_told(call, words):
    with pytest.raises(InputError, match=words):
        call(Separate())


def test_the_verdict_reads_and_is_json():
    verdict = perf.equivalent(dotgat.Reference(), dotgat.Published(), batch(2, 5, 4), weights=dotgat.fuse)
    text = str(verdict)
    assert "first difference: output[0], before training: max error" in text
    assert "% outside" in text
    data = json.loads(verdict.to_json())
    assert data["level"] == "different"
    assert data["first"]["name"] == "output[0]"


@pytest.mark.cuda
def test_sides_may_live_on_different_devices():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    assert perf.equivalent(Separate(), Joined().cuda(), batch(), weights=JOIN, same_draws=False).steps >= 0


# --- distributions ----------------------------------------------------------------------------------------------------


class Noisy(nn.Module):
    """Dropout by its own draws: `late` draws one number before, so no draw is the same."""

    def __init__(self, late=False, keep=0.7, spread=1.0):
        super().__init__()
        self.linear, self.late, self.keep, self.spread = nn.Linear(8, 8), late, keep, spread

    def forward(self, x):
        if self.late:
            torch.rand(3)
        kept = (torch.rand(x.shape[0], 8) < self.keep).float() / self.keep
        return self.linear(x) * kept + self.spread * torch.randn(x.shape[0], 8)


def test_other_draws_of_one_distribution_are_statistically_equal_and_do_not_pass():
    verdict = perf.equivalent(Noisy(), Noisy(late=True), torch.ones(4, 8), seeds=200)
    assert verdict.level == "statistically equal", str(verdict)
    assert not verdict.passed
    assert "error level 0.001" in str(verdict)
    assert json.loads(verdict.to_json())["distribution"]["level"] == "statistically equal"


@pytest.mark.parametrize("fault", [{"keep": 0.4}, {"spread": 1.5}], ids=["mean and spread", "spread"])
def test_another_distribution_is_different(fault):
    verdict = perf.equivalent(Noisy(), Noisy(late=True, **fault), torch.ones(4, 8), seeds=200)
    assert verdict.level == "different", str(verdict)
    assert "by 3,999 shuffles" in verdict.distribution.why


def test_what_does_not_vary_is_not_excused_by_statistics():
    verdict = perf.equivalent(lambda x: x + 1, lambda x: x + 1.001, torch.ones(3), seeds=20)
    assert verdict.level == "different"
    same = perf.equivalent(lambda x: x + 1, lambda x: x + 1, torch.ones(3), seeds=20)
    assert same.level == "bit-equal"
    assert same.distribution is None
    with pytest.raises(InputError, match="at least 20"):
        perf.equivalent(torch.exp, torch.sin, torch.ones(3), seeds=5)


KINDS = {
    "dtype float32 against float64": lambda x: (x * 2).double(),
    "dtype float32 against bfloat16": lambda x: (x * 2).bfloat16(),
    "dtype float32 against int64": lambda x: (x * 2).long(),
    "dtype float32 against complex64": lambda x: (x * 2).to(torch.complex64),
    "layout strided against sparse_coo": lambda x: (x * 2).to_sparse(),
    "shape [3, 2] against [2, 3]": lambda x: (x * 2).T,
    "requires_grad True against False: no gradient comes through it in b": lambda x: (x * 2).detach(),
}


def test_numbers_that_a_function_gives_are_compared():
    x = torch.ones(3)
    for a, b in [
        (lambda x: x.sum().item(), lambda x: x.sum().item() + 1),
        (lambda x: (x * 1, {"n": 3}), lambda x: (x * 1, {"n": 4})),
        (lambda x: x.sum().item(), lambda x: x.sum() + 1),
        (lambda x: x.numpy().sum(), lambda x: x.numpy().sum() + 1),
        (lambda x: 1 + 2j, lambda x: 1 + 3j),
        (lambda x: 3, lambda x: 3.0),
        (lambda x: x.numpy().copy(), lambda x: x.numpy().astype("float64")),
    ]:
        assert not perf.equivalent(a, b, x).passed
        assert perf.equivalent(a, lambda x, a=a: a(x), x).level == "bit-equal"
    assert perf.equivalent(lambda x: x.sum().item(), lambda x: x.sum(), x).level == "bit-equal"


@pytest.mark.parametrize("why", KINDS)
def test_another_kind_of_tensor_is_a_difference_by_name(why):
    x = torch.arange(6.0).view(3, 2).requires_grad_()
    loss = lambda out: out.real.sum() if out.is_complex() else out.sum()
    verdict = perf.equivalent(lambda x: x * 2, KINDS[why], x, loss=loss)
    assert not verdict.passed
    assert verdict.first.name == "output"
    assert verdict.first.why.startswith(why)
    assert why in str(verdict)
    assert ("tolerances={torch.float32" in str(verdict)) == why.startswith("dtype")


def test_the_same_values_of_another_dtype_are_different_in_weights_and_gradients():
    class Cast(nn.Linear):
        def forward(self, x):
            return super().forward(x.double()).float()

    a, b = nn.Linear(2, 2), Cast(2, 2).double()
    verdict = perf.equivalent(a, b, torch.ones(3, 2), tolerances={torch.float32: (1e-3, 1e-3)})
    named = {one.name: one.why for one in verdict.differences}
    assert named["gradient of weight"] == named["weight after the step"] == "dtype float32 against float64"
    assert not verdict.passed


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_compared():
    def nested(x):
        return torch.nested.nested_tensor([x[:1], x])

    assert perf.equivalent(nested, lambda x: nested(x * 1), torch.ones(3)).passed
    assert not perf.equivalent(nested, lambda x: nested(x * 2), torch.ones(3)).passed
