"""Each idle gap has the cause that was written into the trace; gaps and busy time make up the window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from denizen.perf import Gap, attribute
from denizen.perf.watch import busy

from .traces import BACKWARD, MAIN, OTHER, Tape, two_kernels

LAUNCH = "launch-bound"
READ = "host read"
LOCK = "interpreter lock"
ALLOCATOR = "allocator"
COPY = "copy"
DATA = "data wait"
HOST = "host work"
CORE = "no core"
UNKNOWN = "unknown"
CAUSES = (LAUNCH, READ, LOCK, ALLOCATOR, COPY, DATA, HOST, CORE, UNKNOWN)


def only(tape: Tape) -> Gap:
    (gap,) = attribute(tape.trace())
    assert sum(gap.shares.values()) == pytest.approx(1)
    return gap


def test_launch_bound_where_the_host_dispatches():
    tape = two_kernels(50, 150, 145)
    tape.host("aten::add", 20, 140)
    gap = only(tape)
    assert (gap.start, gap.end, gap.cause) == (50_000, 150_000, LAUNCH)
    assert "aten::add" in gap.evidence
    assert (gap.before, gap.after) == ("gemm", "gemm")


def test_launch_bound_where_short_python_lies_between_operators():
    assert only(two_kernels(50, 120, 115)).cause == LAUNCH


def test_host_read_that_drained_the_queue():
    tape = two_kernels(50, 150, 145)
    tape.host("aten::item", 0, 60)
    tape.host("aten::_local_scalar_dense", 1, 59)
    tape.copy("DtoH", 51, 52, asked=2)
    tape.call("cudaStreamSynchronize", 8, 58)
    tape.host("aten::add", 70, 140)
    gap = only(tape)
    assert gap.cause == READ
    assert "aten::item" in gap.evidence
    assert LAUNCH not in gap.shares or gap.shares[LAUNCH] < 0.1


def test_explicit_synchronize_is_a_host_read():
    tape = two_kernels(50, 130, 125)
    tape.call("cudaDeviceSynchronize", 10, 55)
    assert only(tape).cause == READ


@pytest.mark.parametrize("within", ["", "aten::sum"])  # some operators ask for the lock within
def test_interpreter_lock_by_samples(within):
    tape = two_kernels(50, 40_050, 40_045)
    if within:
        tape.host(within, 40, 40_048)
    for k in range(9):
        tape.sample(5_000 * k, MAIN, 10, "train.py:9 step", late=4_500)
        tape.sample(5_000 * k, OTHER, 4_900 * k, "log.py:3 render", late=4_500)
    gap = only(tape)
    assert gap.cause == LOCK
    assert "log.py:3 render" in gap.evidence


def test_a_loaded_machine_is_named_beside_the_lock():
    tape = two_kernels(50, 40_050, 40_045)
    tape.facts = {"denizen": {"steps": 1, "load": 6.0, "cores": 2}}
    tape.step(0, -50, 40_100)
    for k in range(9):
        tape.sample(5_000 * k, MAIN, 10, "train.py:9 step", late=4_500, waits=k % 2 == 0)  # asleep at times
        tape.sample(5_000 * k, OTHER, 4_900 * k, "log.py:3 render", late=4_500)
    gap = max(attribute(tape.trace()), key=lambda gap: gap.duration)
    assert gap.cause == LOCK
    assert "load 6.0 on 2 cores" in gap.evidence


@pytest.mark.parametrize(
    ("used", "waits", "words", "cause"),
    [
        (4_900, False, "ran Python", HOST),
        (10, True, "waited at", HOST),
        (500, False, "others had them", CORE),
    ],
)
def test_what_a_thread_did_is_told(used, waits, words, cause):
    tape = two_kernels(50, 40_050, 40_045)
    for k in range(9):
        tape.sample(5_000 * k, MAIN, used * k, "train.py:9 step", waits=waits)
    gap = only(tape)
    assert gap.cause == cause
    assert words in gap.evidence


@pytest.mark.parametrize(
    ("main", "other", "late", "waits", "cause"),
    [
        (4_900, 4_900, 4_500, False, HOST),
        (0, 0, 0, False, CORE),
        (0, 4_900, 0, False, CORE),
        (0, 4_900, 4_500, True, HOST),
    ],
    ids=["it ran itself", "nobody ran", "the lock was free", "it waited of its own accord"],
)
def test_no_interpreter_lock(main, other, late, waits, cause):
    tape = two_kernels(50, 40_050, 40_045)
    for k in range(9):
        tape.sample(5_000 * k, MAIN, main * k, "train.py:9 step", late=late, waits=waits)
        tape.sample(5_000 * k, OTHER, other * k, "log.py:3 render", late=late)
    gap = only(tape)
    assert gap.cause == cause
    assert gap.at == "train.py:9 step"


def test_interpreter_lock_by_stacks():
    tape = two_kernels(50, 10_050, 10_045)
    tape.python("train.py(9): step", -100, 11_000)
    tape.python("log.py(3): render", 60, 5_000, OTHER)
    tape.python("log.py(8): compress", 5_001, 9_900, OTHER)
    gap = only(tape)
    assert gap.cause == LOCK
    assert "log.py" in gap.evidence


def test_a_thread_that_sleeps_does_not_wait_for_the_lock():
    tape = two_kernels(50, 10_050, 10_045)
    tape.python("train.py(9): step", -100, 11_000)
    tape.python("<built-in function sleep>", 55, 10_000)
    tape.python("log.py(3): render", 60, 9_000, OTHER)
    gap = only(tape)
    assert gap.cause == HOST
    assert gap.at == "train.py(9): step"


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "cudaHostAlloc", "cuMemCreate", "hipMalloc"])
def test_allocator(name):
    tape = two_kernels(50, 500, 495)
    tape.host("aten::empty", 40, 460)
    tape.call(name, 45, 450)
    gap = only(tape)
    assert gap.cause == ALLOCATOR
    assert name in gap.evidence


def test_copy_with_no_kernel_beside_it():
    tape = two_kernels(50, 500, 60)
    tape.copy("HtoD", 55, 490, asked=20)
    assert only(tape).cause == COPY


def test_copy_that_the_host_waits_for():
    tape = two_kernels(50, 500, 495)
    tape.host("aten::copy_", 10, 470)
    tape.copy("HtoD", 55, 60, asked=20, took=5)
    tape.call("cudaStreamSynchronize", 30, 465)
    gap = only(tape)
    assert gap.cause == COPY


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation"),
        ("torch/utils/data/dataloader.py(733): __next__", "python_function"),
        ("data wait", "user_annotation"),
    ],
)
def test_data_wait(name, category):
    tape = two_kernels(50, 5_000, 4_990)
    tape.host(name, 20, 4_950, category)
    tape.host("aten::stack", 100, 2_000)  # collation is the loader's work
    gap = only(tape)
    assert gap.cause == DATA
    assert name in gap.evidence


def test_a_slow_launch_is_launch_bound():
    tape = two_kernels(50, 900, 100)
    tape.events[-2]["dur"] = 790  # cudaLaunchKernel, which loads code first
    gap = only(tape)
    assert gap.cause == LAUNCH
    assert UNKNOWN not in gap.shares


def test_a_short_copy_drains_nothing():
    tape = two_kernels(50, 150, 145)
    tape.copy("HtoD", 52, 53, asked=46, took=8)
    tape.host("aten::add", 55, 140)
    assert only(tape).cause == LAUNCH


def test_queued_kernels_follow_at_once():
    gap = only(two_kernels(50, 52, 10))
    assert gap.cause == LAUNCH
    assert "queued" in gap.evidence


def test_kernels_of_a_graph():
    """One launch for many: what lies between them is the device's."""
    tape = Tape()
    tape.call("cudaGraphLaunch", 0, 20, correlation=1)
    tape._correlation = 1
    tape._work("kernel", "a", 10, 20, 0, 7)
    tape._work("kernel", "b", 21, 30, 0, 7)
    assert only(tape).cause == LAUNCH


def test_unknown_where_the_trace_shows_nothing():
    assert only(two_kernels(50, 5_000, 4_990)).cause == UNKNOWN


def test_unknown_where_the_device_was_asked_in_time():
    gap = only(two_kernels(50, 500, 10))
    assert gap.cause == UNKNOWN
    assert "event" in gap.evidence


def test_work_of_the_backward_thread_counts():
    """The optimiser's kernel comes late because backward dispatched until then, on a thread of its own."""
    tape = two_kernels(50, 1_000, 995)
    tape.kernel(40, 45, 30, thread=BACKWARD)
    tape.host("autograd::engine::evaluate_function: MmBackward0", 55, 950, thread=BACKWARD)
    assert only(tape).cause == LAUNCH


def test_a_gap_within_another_streams_kernel_is_none():
    tape = two_kernels(50, 150, 145)
    tape.kernel(40, 160, 30, stream=9)
    assert attribute(tape.trace()) == []


def test_only_the_busiest_device_is_looked_at():
    tape = two_kernels(50, 120, 115)
    tape.kernel(60, 100, 55, device=1)
    assert only(tape).duration == 70_000


def test_on_the_cpu_operators_stand_for_kernels():
    tape = Tape()
    tape.host("aten::mm", 0, 50)
    tape.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 55, 1_000, "user_annotation")
    tape.host("aten::mm", 1_010, 1_050)
    gap = only(tape)
    assert gap.cause == DATA


def test_nothing_gives_nothing():
    assert attribute(Tape().trace()) == []


times = st.integers(0, 3_000)
work = st.tuples(times, st.integers(1, 400), st.integers(0, 900), st.integers(0, 2), st.booleans())
calls = st.tuples(
    st.sampled_from(["aten::add", "cudaMalloc", "cudaStreamSynchronize", "aten::item", "ProfilerStep#1", "f.py(1): f"]),
    times,
    st.integers(1, 900),
    st.sampled_from([MAIN, OTHER]),
)


@given(st.lists(work, max_size=12), st.lists(calls, max_size=12), st.booleans())
def test_busy_and_gaps_make_up_the_window(works, calls, own):
    tape = Tape()
    tape.facts = {"denizen": {"steps": 1}} if own else {}
    for start, length, ahead, stream, kernel in works:
        if kernel:
            tape.kernel(start, start + length, start - ahead, stream=stream)
        else:
            tape.copy("HtoD", start, start + length, start - ahead, stream=stream)
    for name, start, length, thread in calls:
        category = "cuda_runtime" if name.startswith("cuda") else "cpu_op" if "::" in name else "user_annotation"
        tape.host(name, start, start + length, "python_function" if "(" in name else category, thread)
    trace = tape.trace()
    first, last = trace.window
    found = attribute(trace)
    length = busy(e.span() for e in trace.kernels if first <= e.start and e.end <= last)
    assert 0 <= length <= last - first
    if all(first <= e.start and e.end <= last for e in trace.kernels):
        assert sum(gap.duration for gap in found) + length == last - first
    for gap in found:
        assert first <= gap.start < gap.end <= last
        assert sum(gap.shares.values()) == pytest.approx(1)
        assert gap.cause in CAUSES
        assert gap.shares[gap.cause] == max(gap.shares.values())
