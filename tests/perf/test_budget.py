"""Budgets as a user meets them: regions, steps, decorators, limits, permits, threads, tasks, reports."""

import asyncio
import contextvars
import functools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.errors import BudgetError, InputError
from denizen.perf import allow


def budget(*limits, **named):
    return dz.budget(*limits, device="simulated", **named)


DEVICE = "simulated:0"
NONE = {"host_reads": None, "transfers": None, "recompiles": None}


@pytest.fixture(autouse=True)
def _known_to_torch():
    assert str(budget().device) == DEVICE


@pytest.fixture
def x():
    return torch.arange(4.0, device=DEVICE)


# Regions


def test_a_region_fails_with_line_operation_count_and_fix(x):
    with pytest.raises(BudgetError) as caught, budget():  # noqa: PT012
        for _ in range(3):
            x.sum().item()  # here
    text, report = str(caught.value), caught.value.report
    (finding,) = report.findings
    assert "x.sum().item()  # here" in finding.code
    assert finding.count == 3
    assert finding.kind == "host-sync-item"
    for part in (f"test_budget.py:{finding.line}", "host_reads: 3, allowed 0", "_local_scalar_dense", "instead:"):
        assert part in text
    assert report.exceeded == ["host_reads"]
    assert not report.ok


def test_an_error_of_the_region_is_not_hidden(x):
    guard = budget()
    with pytest.raises(KeyError), guard:  # noqa: PT012
        x.sum().item()
        raise KeyError("mine")
    assert guard.report.exceeded == ["host_reads"]


def test_a_budget_is_used_again_and_forgets_what_was_before(x):
    guard = budget()
    with pytest.raises(BudgetError), guard:
        x.tolist()
    with guard:
        x.add(1)
    assert guard.report.ok
    assert not guard.report.findings


def test_outside_of_regions_nothing_is_counted(x):
    guard = budget()
    x.tolist()
    with guard:
        x.add(1)
    x.tolist()
    assert guard.report.ok
    assert guard.findings == []


def test_a_nested_budget_counts_for_both(x):
    outer, inner = budget(host_reads=2), budget(host_reads=1)
    with outer:
        x.tolist()
        with inner:
            x.tolist()
    assert (outer.report.measured["host_reads"], inner.report.measured["host_reads"]) == (2, 1)


def test_findings_can_be_read_while_the_region_is_open(x):
    guard = budget(host_reads=None)
    with guard:
        x.tolist()
        assert [finding.kind for finding in guard.findings] == ["host-sync-item"]


def test_opening_it_twice_is_an_error(x):
    guard = budget()
    with guard, pytest.raises(InputError, match="open already"):  # noqa: PT012
        x.add(1)
        guard.__enter__()


def test_library_frames_lie_between_but_the_users_line_is_blamed():
    net = nn.Linear(2, 2).to(DEVICE)
    net(torch.ones(1, 2, device=DEVICE)).sum().backward()
    with pytest.raises(BudgetError) as caught, budget():
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    (finding,) = caught.value.report.findings
    assert finding.file == __file__
    assert "clip_grad.py" in finding.via


# Steps


def test_limits_hold_for_each_step_and_set_up_and_warm_up_are_not_counted(x):
    guard = budget(host_reads=1)
    with guard:
        x.tolist(), x.tolist()  # set-up
        for i in guard.steps(5):
            x.sum().item()
            if i == 0:
                x.tolist()  # warm-up
        x.tolist(), x.tolist()
    assert guard.report.measured["host_reads"] == 1
    assert guard.report.steps == [1, 2, 3, 4]


@pytest.mark.parametrize(("every", "period"), [(1, "every step"), (3, "every 3 steps")])
def test_findings_have_a_period(x, every, period):
    guard = budget(host_reads=None)
    with guard:
        for i in guard.steps(10):
            if i % every == 0:
                x.sum().item()
    assert [finding.period for finding in guard.report.findings] == [period]


def test_steps_loop_over_items_and_draw_within_the_step(x):
    def batches():
        for value in (1, 2, 3):
            yield x.sum().item() + value

    guard = budget(host_reads=None)
    with guard:
        assert list(guard.steps(batches())) == [7.0, 8.0, 9.0]
    assert guard.report.findings[0].count == 1
    assert guard.report.steps == [1, 2]


def test_leaving_a_loop_early_ends_its_step(x):
    guard = budget()
    with guard:
        for i in guard.steps(10):
            if i == 3:
                break
        x.tolist()
    assert guard.report.steps == [1, 2, 3]


# Limits


def test_each_limit_is_held_against_what_was_done(x):
    host = torch.ones(8)
    guard = budget(9, 9, bytes=10**6, ops=99, kernels=99, new_allocations=99, peak_bytes=10**9)
    with guard:
        y = host.to(DEVICE)
        z = y + 1
        z.add_(1)
        z.view(2, 4).tolist()
    measured = guard.report.measured
    assert (measured["host_reads"], measured["transfers"]) == (1, 1)
    assert measured["bytes"] == 2 * 8 * 4
    assert measured["ops"] == measured["kernels"] == 3  # the copy, add, add_; not the view
    assert measured["new_allocations"] == 2
    assert measured["peak_bytes"] >= 2 * 8 * 4


@pytest.mark.parametrize(
    ("limit", "most"), [("bytes", 31), ("ops", 1), ("kernels", 1), ("new_allocations", 1), ("peak_bytes", 63)]
)
def test_a_limit_is_an_upper_bound(limit, most):
    def work():
        (torch.ones(8).to(DEVICE) + 1).mul_(1)

    with pytest.raises(BudgetError, match=f"{limit}: "), budget(**NONE, **{limit: most}):
        work()
    with budget(**NONE, **{limit: 10**9}):
        work()


def test_graphs_and_recompilations_are_counted():
    @torch.compile(backend="eager", dynamic=False)
    def double(value):
        return value * 2

    guard = budget(graphs=0)
    double(torch.ones(2, device=DEVICE))
    with guard:
        double(torch.ones(2, device=DEVICE))
    with pytest.raises(BudgetError) as caught, guard:
        double(torch.ones(3, device=DEVICE))
    assert set(caught.value.report.exceeded) == {"graphs", "recompiles"}
    assert [finding.kind for finding in caught.value.report.findings] == ["recompile"]
    torch._dynamo.reset()


def test_no_bound_lets_everything_pass(x):
    with budget(**NONE):
        x.tolist(), torch.ones(3).to(DEVICE)


# Permits


def test_an_allowed_read_is_not_counted_and_says_why(x):
    guard = budget()
    with guard:
        for i in guard.steps(7):
            if i % 3 == 0:
                with allow("periodic log", every=3):
                    x.tolist()
    assert [finding.reason for finding in guard.report.findings] == ["periodic log"]
    assert "allowed: periodic log" in str(guard.report)


def test_a_permit_that_is_used_too_often_does_not_hold(x):
    guard = budget()
    with pytest.raises(BudgetError, match="allowed once in 3 steps"), guard:  # noqa: PT012
        for _ in guard.steps(4):
            with guard.allow("periodic log", every=3):
                x.tolist()


def test_a_permit_is_a_decorator_and_nothing_without_a_budget(x):
    @allow("a report")
    def report():
        return x.tolist()

    assert report() == [0, 1, 2, 3]
    with budget():
        report()


# Threads and tasks


def test_threads_of_the_region_count_and_others_do_not(x):
    release, done = threading.Event(), threading.Event()

    def foreign():
        release.wait(120)
        x.tolist()
        done.set()

    other = threading.Thread(target=foreign)
    other.start()
    guard = budget(host_reads=None)
    with guard:
        release.set()
        done.wait(120)
        mine = threading.Thread(target=lambda: x.sum().item())
        mine.start()
        mine.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(x.sum().item).result()
    other.join()
    assert guard.report.measured["host_reads"] == 2
    assert threading.Thread.start.__module__ == "threading"


def test_permits_belong_to_the_thread_that_asked(x):
    inside, finish = threading.Event(), threading.Event()

    def allowed():
        with allow("mine"):
            inside.set()
            finish.wait(120)

    guard = budget(host_reads=None)
    with guard:
        thread = threading.Thread(target=allowed)
        thread.start()
        inside.wait(120)
        x.tolist()
        finish.set()
        thread.join()
    assert guard.report.measured["host_reads"] == 1


def test_tasks_have_budgets_of_their_own(x):
    async def read(times, guard):
        with guard:
            for _ in range(times):
                await asyncio.sleep(0)
                x.tolist()

    async def both():
        first, second = budget(host_reads=None), budget(host_reads=None)
        await asyncio.gather(read(1, first), read(3, second))
        return first.report.measured["host_reads"], second.report.measured["host_reads"]

    assert asyncio.run(both()) == (1, 3)


def test_a_copied_context_counts(x):
    guard = budget(host_reads=None)
    with guard:
        contextvars.copy_context().run(x.tolist)
    assert guard.report.measured["host_reads"] == 1


# Decorators


def test_each_call_of_a_decorated_function_is_a_region(x):
    guard = budget(host_reads=1)

    @guard
    def read(times):
        """Read."""
        return [x.sum().item() for _ in range(times)]

    assert read(1) == [6.0]
    assert read(1) == [6.0]
    assert read.__name__ == "read"
    assert read.__doc__ == "Read."
    with pytest.raises(BudgetError):
        read(2)
    assert guard.report.measured["host_reads"] == 2


def test_recursion_is_one_region(x):
    @budget(host_reads=2)
    def down(depth):
        x.sum().item()
        return down(depth - 1) if depth else 0

    down(1)
    with pytest.raises(BudgetError, match="host_reads: 3"):
        down(2)


def test_threads_may_call_it_at_once(x):
    together = threading.Barrier(2)

    @budget(host_reads=1)
    def read():
        together.wait(120)
        return x.sum().item()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: read(), range(2))) == [6.0, 6.0]


def test_coroutines_are_regions_too(x):
    @budget()
    async def read():
        await asyncio.sleep(0)
        return x.sum().item()

    with pytest.raises(BudgetError):
        asyncio.run(read())


def test_generators_are_refused():
    def values():
        yield 1

    with pytest.raises(InputError, match="the generator values"):
        budget()(values)


def test_called_with_limits_it_is_another_budget(x):
    guard = budget(ops=5)
    other = guard(host_reads=1)
    assert (other.limits["ops"], other.limits["host_reads"], guard.limits["host_reads"]) == (5, 1, 0)


# Wrong arguments


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: budget(host_reads=-1), "host_reads=-1"),
        (lambda: budget(transfers=1.5), "transfers=1.5"),
        (lambda: budget(ops=True), "ops=True"),
        (lambda: budget()(hostreads=1), "host_reads"),
        (lambda: dz.budget(device="tpu"), "'tpu'"),
        (lambda: dz.budget(device="simulated:3"), "simulated:3"),
        (lambda: budget()(3), "decorates a function"),
        (lambda: budget().steps(3), "within a region"),
        (lambda: allow("").__enter__(), "say why"),
        (lambda: allow("log", every=0).__enter__(), "every=0"),
    ],
)
def test_wrong_arguments_are_named(call, says):
    with pytest.raises(InputError) as caught:
        call()
    assert says in str(caught.value)


@pytest.mark.parametrize("warmup", [-1, True, 1.0])
def test_a_wrong_warm_up_is_named(x, warmup):
    guard = budget()
    with guard, pytest.raises(InputError, match="warmup="):
        guard.steps(x.add(1).dim() and 3, warmup=warmup)


@pytest.mark.parametrize("items", [None, -1, 2.0, True])
def test_steps_of_something_else_is_named(x, items):
    guard = budget()
    with guard, pytest.raises(InputError, match="items="):
        guard.steps(items, x.add(1).dim())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_said():
    with pytest.raises(InputError, match="no CUDA device here"):
        dz.budget(device="cuda")


# Reports


def test_the_report_says_what_it_cannot_see(x):
    guard = budget()
    with guard:
        x.add(1)
    assert "autocast" in guard.report.unseen
    assert 'device.type == "cuda"' in str(guard.report)


def test_a_step_that_did_not_use_the_device_is_said():
    guard = budget()
    with pytest.raises(BudgetError, match="saw nothing"), guard:
        torch.ones(3).add(1)
    assert guard.report.ops == 0
    assert guard.report.saw_nothing
    assert not guard.report.ok
    assert "No operation ran on simulated:0" in str(guard.report)
    with pytest.raises(BudgetError, match="saw nothing"), guard:
        for _ in guard.steps([]):
            pass


def test_a_decorated_function_that_did_not_use_the_device_is_said():
    with pytest.raises(BudgetError, match="saw nothing"):
        budget()(lambda: torch.ones(3).add(1))()


def test_a_region_in_which_nothing_is_meant_to_run_passes(x):
    with budget(ops=0):
        torch.ones(3).add(1)
    with budget(kernels=0) as guard:
        pass
    assert guard.report.ok
    with pytest.raises(BudgetError, match="ops: 1, allowed 0"), budget(ops=0):
        x.add(1)


def test_a_call_that_gives_a_result_that_was_kept_is_no_failure(x):
    kept = functools.cache(lambda: x.add(1))
    calls = budget()(kept)
    calls()
    calls()
    guard = budget()
    with guard:
        x.add(1)
    with guard:
        kept()
    assert guard.report.ok
    assert not guard.report.saw_nothing


def test_views_alone_are_seen(x):
    with budget() as guard:
        x.view(2, 2).T.detach()
    assert guard.report.ok
    assert guard.report.ops == 0


def test_a_report_is_json(x):
    guard = budget(host_reads=None)
    with guard:
        x.tolist()
    data = json.loads(json.dumps(guard.report.to_dict()))
    assert data["device"] == "simulated:0"
    assert data["findings"][0]["kind"] == "host-sync-item"


def test_nothing_stays_behind(x):
    before = (torch.cuda.synchronize, torch.cuda.Event, threading.Thread.start)
    with budget():
        x.add(1)
        assert torch.cuda.synchronize is not before[0]
    assert (torch.cuda.synchronize, torch.cuda.Event, threading.Thread.start) == before


@pytest.mark.parametrize(
    ("act", "fix"),
    [
        (lambda x: torch.repeat_interleave(x), "output_size"),
        (lambda x: torch.nn.functional.one_hot(x), "num_classes"),
        (lambda x: torch.bincount(x), "scatter_add_"),
        (lambda x: x.sum().item(), "every N steps"),
    ],
)
def test_the_fix_is_that_of_the_line(act, fix):
    guard = budget(host_reads=None)
    with guard:
        act(torch.arange(3, device=DEVICE))
    assert fix in guard.report.findings[0].fix
