"""Where a pass over a DataLoader is, and how to take it up again: no batch twice, none left out."""

import random
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset


class SameOrder(DataLoader):
    """A DataLoader with persistent workers that takes as many random numbers as one without.

    torch draws a seed for the workers each time they start; with workers that stay, later passes would be shuffled
    otherwise than without.
    """

    def __iter__(self) -> Any:
        if self.persistent_workers and self._iterator is not None:
            draw_seed(self)
        return super().__iter__()


def draw_seed(loader: DataLoader) -> None:
    """Take the random number that torch takes for the seed of workers."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def plain(loader: Any) -> bool:
    """Whether a loader is torch's own, so that another one like it can be made."""
    return type(loader) in (DataLoader, SameOrder)


def rebuilt(loader: DataLoader, **changes: Any) -> DataLoader:
    """A loader of the same batches in the same order, with other settings."""
    workers = changes.get("num_workers", loader.num_workers)
    settings: dict[str, Any] = {
        "num_workers": workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout if workers else 0,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context if workers else None,
        "generator": loader.generator,
        "persistent_workers": loader.persistent_workers and workers > 0,
        "prefetch_factor": loader.prefetch_factor if workers else None,
        "in_order": loader.in_order,
    }
    if isinstance(loader.dataset, IterableDataset):
        settings |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    elif loader.batch_sampler is not None:
        settings["batch_sampler"] = loader.batch_sampler
    else:
        settings |= {"batch_size": None, "sampler": loader.sampler}
    if "batch_sampler" in changes or "sampler" in changes:
        settings.pop("batch_sampler", None)
    return SameOrder(loader.dataset, **(settings | changes))


# --- random numbers ---------------------------------------------------------------------------------------------------


@contextmanager
def same_random_numbers(loader: Any = None) -> Generator[None]:
    """What the block draws from the generators of torch (CPU), NumPy, Python and the loader is given back."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    own = {name: generator.get_state() for name, generator in _generators(loader).items()}
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        random.setstate(kept[2])
        for name, generator in _generators(loader).items():
            generator.set_state(own[name])


def _generators(loader: Any) -> dict[str, torch.Generator]:
    """Generators that decide the order of a loader, by where they are."""
    batches = getattr(loader, "batch_sampler", None)
    owners = {
        "loader": loader,
        "sampler": getattr(loader, "sampler", None),
        "batch_sampler": batches,
        "batch_sampler.sampler": getattr(batches, "sampler", None),
    }
    found = {name: getattr(owner, "generator", None) for name, owner in owners.items()}
    return {name: generator for name, generator in found.items() if isinstance(generator, torch.Generator)}


# --- the place in a pass ----------------------------------------------------------------------------------------------


def order_of(loader: Any) -> dict[str, Any]:
    """What decides the order of the pass that is about to begin."""
    seeds_drawn = not (
        type(loader) is DataLoader and loader.persistent_workers and getattr(loader, "_iterator", None) is not None
    )
    return {
        "torch": torch.get_rng_state(),
        "generators": {name: generator.get_state() for name, generator in _generators(loader).items()},
        "sampler_epoch": getattr(getattr(loader, "sampler", None), "epoch", None),
        "seeds_drawn": seeds_drawn,
    }


def taken_up(loader: Any, order: dict[str, Any], skip: int) -> Iterator[Any]:
    """The rest of a pass: as it was begun, without its first `skip` batches.

    Batches are left out where they are chosen, without loading them, if the loader is torch's own and its dataset can
    be indexed; otherwise they are loaded and thrown away.
    """
    if order["sampler_epoch"] is not None and hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(order["sampler_epoch"])
    kept = torch.get_rng_state()
    try:
        _set(loader, order)
        if not plain(loader) or isinstance(loader.dataset, IterableDataset):
            batches = iter(loader)
            for _ in range(skip):
                next(batches, None)
            return batches
        return _rest(loader, order, skip)
    finally:
        torch.set_rng_state(kept)


def start_workers(loader: Any) -> None:
    """Start workers that stay, without a draw: in the run that is resumed they were there before this pass."""
    if type(loader) is DataLoader and loader.persistent_workers and loader._iterator is None:
        with same_random_numbers(loader):
            iter(loader)


def _rest(loader: DataLoader, order: dict[str, Any], skip: int) -> Iterator[Any]:
    if order["seeds_drawn"]:
        draw_seed(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler: Iterable[Any] = getattr(loader, name)
    chosen = iter(sampler)
    for _ in range(skip):
        next(chosen, None)
    first = next(chosen, None)  # of the rest; samplers may draw as late as this
    if first is None:
        return iter(())
    length = len(sampler) - skip if hasattr(sampler, "__len__") else None  # pyrefly: ignore
    # The workers' seed comes from the same place as before, while the sampler's own numbers go on.
    seeds = torch.Generator()
    seeds.set_state(_bytes(order["generators"].get("loader", order["torch"])))
    changes = {name: _Rest(first, chosen, length), "generator": seeds, "persistent_workers": False}
    return iter(rebuilt(loader, **changes))


def _set(loader: Any, order: dict[str, Any]) -> None:
    torch.set_rng_state(_bytes(order["torch"]))
    for name, generator in _generators(loader).items():
        if name in order["generators"]:
            generator.set_state(_bytes(order["generators"][name]))


def _bytes(state: Tensor) -> Tensor:
    """A generator's state on the CPU, where `torch.load(map_location=)` may have moved it away from."""
    return state.cpu() if isinstance(state, Tensor) else torch.tensor(state, dtype=torch.uint8)


class _Rest:
    """A sampler for what is left of another one's pass."""

    def __init__(self, first: Any, chosen: Iterator[Any], length: int | None) -> None:
        self._first, self._chosen, self._length = first, chosen, length

    def __iter__(self) -> Iterator[Any]:
        yield self._first
        yield from self._chosen

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the sampler has no length")
        return self._length
