"""pytest plugin of denizen: a fixture and a marker that fail a test which keeps the device waiting.

Installed with denizen. A package of its own, so that pytest's start imports neither torch nor denizen: both come with
the first test that asks for a budget.

```python
def test_a_step_reads_nothing(budget):
    net = Net().to(budget.device)  # the GPU, or a simulated one
    train_step(net)  # first-call work
    with budget:
        train_step(net)


@pytest.mark.budget(host_reads=1)  # the whole test is the region; its fixtures are not
def test_a_report_reads_once(net):
    report(net)
```
"""

from collections.abc import Iterator
from typing import Any

import pytest

MARKER = "budget"
HELP = (
    "budget(host_reads=0, transfers=0, bytes=None, graphs=None, recompiles=0, new_allocations=None, kernels=None, "
    "ops=None, peak_bytes=None, device=None): fail the test if its body does more (denizen.budget)"
)


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker."""
    config.addinivalue_line("markers", HELP)


@pytest.fixture
def budget(request: pytest.FixtureRequest) -> Any:
    """A `denizen.budget` with the limits of the test's marker, or with none host read, transfer and recompilation.

    With the marker it is open already while the test runs. `budget(host_reads=2)` is one with other limits.
    """
    return _budget_of(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """The region of a marked test is its function."""
    if pyfuncitem.get_closest_marker(MARKER) is None:
        return (yield)
    with _budget_of(pyfuncitem):
        return (yield)


def _budget_of(item: Any) -> Any:
    """One budget for each test, whoever asks first."""
    made = getattr(item, "_denizen_budget", None)
    if made is None:
        import denizen

        marker = item.get_closest_marker(MARKER)
        made = denizen.budget(*marker.args, **marker.kwargs) if marker else denizen.budget()
        item._denizen_budget = made
    return made
