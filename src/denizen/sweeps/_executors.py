"""Who takes the launches of a sweep: this process, the processes of torchrun, or the workers of a Ray cluster.

An executor is anything with a method `map(function, jobs)` that gives results as they come, in any order, such as those
of concurrent.futures. One that has a number `workers` gets at least as many launches.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from denizen._arguments import number
from denizen._run_folder import decode, encode
from denizen.errors import DenizenError, InputError, need

ROWS = "rows"  # of the table of a launch: the name of a tensor beside its series
PURPOSE = "sweep on a Ray cluster"

Result = tuple[np.ndarray, Mapping[str, Tensor]]
Function = Callable[[np.ndarray], Result]


class Executor(Protocol):
    """Takes the launches of a sweep."""

    def map(self, function: Function, jobs: Sequence[np.ndarray]) -> Iterator[Result]:
        """What the function gives of each job, in any order."""
        ...


class Alone:
    """This process, one launch after the other."""

    workers = 1

    def map(self, function: Function, jobs: Sequence[np.ndarray]) -> Iterator[Result]:
        return map(function, jobs)


class Ranks:
    """The processes of torch.distributed: each takes its share of the launches, and all have all results."""

    def __init__(self) -> None:
        """Collective: in the default process group."""
        import torch.distributed as dist

        self.rank, self.workers = dist.get_rank(), dist.get_world_size()
        self._group: Any = dist.new_group(backend="gloo")  # results are on the host

    def map(self, function: Function, jobs: Sequence[np.ndarray]) -> Iterator[Result]:
        for first in range(0, len(jobs), self.workers):
            error: Exception | None = None
            data = b""
            if first + self.rank < len(jobs):
                try:
                    data = packed(function, jobs[first + self.rank])
                except Exception as caught:
                    error = caught
            for rank in range(min(self.workers, len(jobs) - first)):
                told = f"{type(error).__name__}: {error}".encode() if error is not None and rank == self.rank else b""
                failed = self._sent(told, rank)
                if failed:
                    raise error if error is not None else DenizenError(f"sweep: in process {rank}: {failed.decode()}")
                yield unpacked(self._sent(data, rank), f"what process {rank} gave")

    def least(self, number: int) -> int:
        """The least that a process has: each sees another amount of free memory."""
        import torch.distributed as dist

        held = torch.tensor([number])
        dist.all_reduce(held, dist.ReduceOp.MIN, group=self._group)
        return int(held)

    def shared(self, held: bytes) -> bytes:
        """What the first process holds."""
        return self._sent(held, 0)

    def _sent(self, data: bytes, rank: int) -> bytes:
        """What a process has, in all of them."""
        import torch.distributed as dist

        size = torch.tensor([len(data)])
        dist.broadcast(size, rank, group=self._group)
        if not int(size):
            return b""
        own = rank == self.rank
        held = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8) if own else torch.empty(int(size), dtype=torch.uint8)
        )
        dist.broadcast(held, rank, group=self._group)
        return held.numpy().tobytes()


@dataclasses.dataclass(frozen=True)
class Ray:
    """Workers of a Ray cluster, or of this machine where there is none; the extra `ray`.

    Attributes:
        cpus: cores of a launch, of Ray's count.
        gpus: GPUs of a launch.
        address: of the cluster; None: the one that this process is connected to, else this machine.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    address: str | None = None

    def __post_init__(self) -> None:
        number("Ray", "cpus", self.cpus, 0)
        number("Ray", "gpus", self.gpus, 0)
        if not self.cpus and not self.gpus:
            raise InputError("Ray: cpus=0 and gpus=0, expected a share of one of them for a launch")

    @property
    def workers(self) -> int:
        """Launches that run at once."""
        there = self._connected().cluster_resources()
        wanted = {"CPU": self.cpus, "GPU": self.gpus}
        fit = min(there.get(kind, 0) / share for kind, share in wanted.items() if share)
        if fit < 1:
            held = ", ".join(f"{there.get(kind, 0):g} {kind}s" for kind in wanted)
            raise InputError(f"Ray: cpus={self.cpus:g}, gpus={self.gpus:g}, and the cluster has {held}; ask for fewer")
        return int(fit)

    def map(self, function: Function, jobs: Sequence[np.ndarray]) -> Iterator[Result]:
        ray = self._connected()
        workers, shared = self.workers, ray.put(function)
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus)(packed)
        waiting, left = [], list(jobs)
        try:
            while left or waiting:
                while left and len(waiting) < 2 * workers:  # one more than runs, so that nobody waits for work
                    waiting.append(task.remote(shared, left.pop(0)))
                done, waiting = ray.wait(waiting)
                try:
                    data = ray.get(done[0])
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                yield unpacked(data, "what a worker gave")
        finally:
            for one in waiting:
                ray.cancel(one)

    def _connected(self) -> Any:
        ray = need("ray", "ray", PURPOSE)
        if not ray.is_initialized():
            ray.init(address=self.address, include_dashboard=False, log_to_driver=False)
        return ray


def packed(function: Function, job: np.ndarray) -> bytes:
    """What a launch gives, for another process: series of any dtype."""
    rows, series = function(job)
    return encode({**series, ROWS: torch.as_tensor(rows)})


def unpacked(data: bytes, where: str) -> Result:
    """What `packed` gave."""
    found = decode(data, where)
    return found.pop(ROWS).numpy(), found


def chosen(executor: Any) -> Any:
    """Who takes the launches.

    Raises:
        InputError: something that takes none.
    """
    import torch.distributed as dist

    together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if executor is None:
        return Ranks() if together else Alone()
    if isinstance(executor, type) or not callable(getattr(executor, "map", None)):
        raise InputError(f"sweep: executor={executor!r}, expected an object with a method map, such as dz.sweeps.Ray()")
    if together:
        raise InputError("sweep: executor= in a process group: its processes share the launches already; leave it out")
    return executor
