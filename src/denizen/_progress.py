"""The progress bar of a run: rate and remaining time, by rich."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(steps: int, show: bool, title: str, worlds: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of steps done; shows nothing unless `show`."""
    if not show or steps == 0:
        yield lambda count: None
        return
    from denizen._printing import progress

    label = f"{title} × {worlds}" if worlds > 1 else title
    with progress() as bar:
        task = bar.add_task(label, total=steps, rate="")

        def advance(count: int) -> None:
            bar.advance(task, count)
            speed = bar.tasks[task].speed
            bar.update(task, rate=f"{speed:,.0f}/s" if speed else "")

        yield advance
