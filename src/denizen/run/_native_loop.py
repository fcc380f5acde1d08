"""One loop over the entries of each row, as `_native_writer` writes it: operands, what is stored, sums over a row."""

from collections.abc import Callable, Sequence

from denizen.run._native_parts import Line

ONE = 0.04  # nanoseconds that an operation takes for an entry, about


class Loop:
    """Collects the code of a loop.

    Attributes:
        takes: the array of each parameter, by name.
    """

    def __init__(self, domain: tuple[int, int], view: Callable[[str, Sequence[int], Sequence[int], int], str]) -> None:
        """Args:
        domain: (rows, entries of each).
        view: names the array of a buffer of some shape, strides and offset.
        """
        self.takes: dict[str, str] = {}
        self._rows, self._entries = domain
        self._view = view
        self._head: list[str] = []
        self._body: list[str] = []
        self._tail: list[str] = []
        self._after: list[str] = []  # what puts sums of parts together
        self._across: set[str] = set()  # buffers that are read at entries of others
        self._written: list[str] = []
        self._known: dict[tuple[str, int, int, int], str] = {}

    @property
    def row(self) -> str:
        """The number of the row."""
        return "w" if self._rows > 1 else "0"

    def read(self, buffer: str, offset: int, row: int, entry: int) -> str:
        """An entry of a buffer, by strides of rows and entries."""
        key = (buffer, offset, row, entry)
        if key not in self._known:
            name = f"x{len(self._known)}"
            of_rows, of_entries = self._rows > 1 and row != 0, self._entries > 1 and entry != 0
            if offset != 0 or entry != 1 or (self._rows > 1 and row != self._entries):
                self._across.add(buffer)
            shape = [size for size, there in ((self._rows, of_rows), (self._entries, of_entries)) if there]
            stride = [size for size, there in ((row, of_rows), (entry, of_entries)) if there]
            self.takes[name] = self._view(buffer, shape or [1], stride or [1], offset)
            if not of_entries:
                self._head.append(f"{name}s = {name}[{'w' if of_rows else 0}]")
                self._known[key] = f"{name}s"
            else:
                self._known[key] = f"{name}[w, i]" if of_rows else f"{name}[i]"
        return self._known[key]

    def let(self, name: str, expression: str) -> None:
        """Name what an operation gives."""
        self._body.append(f"{name} = {expression}")

    def store(self, buffer: str, name: str) -> None:
        """Write it into a buffer."""
        into, shape = f"o{len(self.takes)}", [size for size in (self._rows, self._entries) if size > 1] or [1]
        self.takes[into] = self._view(buffer, shape, [shape[-1], 1][-len(shape) :], 0)
        self._written.append(buffer)
        at = [*(["w"] if self._rows > 1 else []), *(["i"] if self._entries > 1 else [])]
        self._body.append(f"{into}[{', '.join(at) or '0'}] = {name}")

    def sums(self, ways: tuple[str, str, str], name: str, buffer: str, result: str, scratch: Callable[[], str]) -> None:
        """Add up over each row, or the like.

        Args:
            ways: those of `reduction`.
            name: of the sum in the code.
            buffer: that it goes into.
            result: the array of that.
            scratch: room for those of parts.
        """
        begin, more, how = ways
        self._head.append(begin)
        self._body.append(more)
        self.takes[f"{name}o"] = array = scratch() if self._entries > 1 else result
        self._tail.append(f"{name}o[{'part, ' if self._entries > 1 else ''}{self.row}] = {name}")
        if self._entries > 1:
            self._after.append(f"{how}({array}, {result}, parts)")
            self._written.append(buffer)

    def code(self, name: str) -> str:
        """The function."""
        inner = ["for i in range(np.uint64(start), np.uint64(stop)):", *[f"    {line}" for line in self._body]]
        lines = [*self._head, *(inner if self._entries > 1 else self._body), *self._tail]
        if self._rows > 1:
            lines = [f"for w in range({self._rows}):", *[f"    {line}" for line in lines]]
        ends = ["start", "stop"] if self._entries > 1 else []
        return "\n    ".join([f"def {name}({', '.join([*self.takes, *self._part, *ends])}):", *lines]) + "\n"

    def call(self, name: str) -> str:
        """The line that calls it."""
        call = f"{name}({', '.join([*self.takes.values(), *self._part])}"
        if self._entries == 1:
            return f"{call})"
        line = Line.of(call, self._rows, self._entries, ONE * len(self._body), self._across, after=self._after)
        line.writes = frozenset(self._written)
        return line

    @property
    def _part(self) -> list[str]:
        return ["part"] if self._after else []
