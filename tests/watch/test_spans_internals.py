"""Unions, gaps and repetitions of intervals, for any intervals."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from denizen.perf.watch import Span, busy, collapsed, gaps, repeating
from denizen.perf.watch._spans import spans, union

pieces = st.builds(lambda start, length, stream: Span(start, start + length, "k", stream), *[st.integers(0, 60)] * 3)
lists = st.lists(pieces, max_size=30)


@given(lists)
def test_union_covers_exactly_the_times_at_which_something_runs(given_spans):
    covered = {t for s in given_spans for t in range(s.start, s.end)}
    merged = union(given_spans)
    assert {t for start, end in merged for t in range(start, end)} == covered
    assert busy(given_spans) == len(covered) <= sum(s.end - s.start for s in given_spans)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))


@given(lists, st.randoms())
def test_order_and_repetition_change_nothing(given_spans, random):
    shuffled = given_spans * 2
    random.shuffle(shuffled)
    assert union(shuffled) == union(given_spans)


@given(lists)
def test_busy_and_idle_make_up_the_window(given_spans):
    if given_spans:
        window = max(s.end for s in given_spans) - min(s.start for s in given_spans)
        idle = sum(end - start for start, end in gaps(given_spans))
        assert busy(given_spans) + idle == window
    else:
        assert gaps(given_spans) == []


def test_two_streams_at_once_are_busy_once():
    assert busy([Span(0, 10, "a", 1), Span(2, 8, "b", 2), Span(9, 12, "c", 1)]) == 12
    assert gaps([Span(0, 3), Span(5, 6), Span(1, 4)]) == [(4, 5)]


names = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)


@given(
    names,
    st.integers(2, 9),
    st.lists(st.sampled_from("xyz"), unique=True),
    st.lists(st.sampled_from("uvw"), unique=True),
)
def test_the_step_is_found_between_loading_and_storing(step, count, before, after):
    found = repeating([*before, *step * count, *after], count)
    assert found is not None
    start, length = found
    assert (start, length) == (len(before), len(step))


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(2, 6))
def test_what_is_found_does_repeat(sequence, count):
    found = repeating(sequence, count)
    if found is not None:
        start, length = found
        block = sequence[start : start + length]
        assert sequence[start : start + length * count] == block * count


def test_nothing_repeats():
    assert repeating("abcdefgh", 3) is None
    assert repeating("", 3) is None
    assert repeating("abc", 1) == (0, 3)


@given(st.lists(st.sampled_from("ab")))
def test_collapsed_lists_come_apart_again(sequence):
    pairs = collapsed(sequence)
    assert [name for name, times in pairs for _ in range(times)] == sequence
    assert all(a[0] != b[0] for a, b in itertools.pairwise(pairs))


class Event:
    """As the profiler gives them."""

    class Range:
        def __init__(self, start, end):
            self.start, self.end = start, end

    def __init__(self, name, start, end, stream=7, annotation=False):
        self.name, self.time_range, self.device_resource_id = name, self.Range(start, end), stream
        self.is_user_annotation = annotation


def test_events_of_the_profiler_become_spans():
    events = [Event("b", 3.5, 4.0), Event("range", 0, 9, annotation=True), Event("a", 1.25, 2.0, stream=9)]
    assert spans(events) == [Span(1250, 2000, "a", 9), Span(3500, 4000, "b", 7)]
