"""The pytest plugin, as a project that installs denizen meets it."""

import pytest
import torch._dynamo  # noqa: F401 - before any run, which drops what it imports; triton cannot be imported twice

import denizen as dz

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("DENIZEN_DEVICE", "cpu")
    assert dz.budget(device="simulated").device  # skips the test where there cannot be one

    def run(body, *arguments):
        pytester.makepyfile("import pytest, torch\n" + body)
        return pytester.runpytest_inprocess("-p", "denizen_pytest", "-p", "no:denizen", *arguments)

    return run


def test_the_fixture_is_a_budget_that_fails_the_test(run):
    result = run("""
def test_good(budget):
    x = torch.ones(3, device=budget.device)
    with budget:
        x.add(1)

def test_bad(budget):
    x = torch.ones(3, device=budget.device)
    with budget:
        x.sum().item()
""")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*host_reads: 1, allowed 0*", "*test_the_fixture*py:*host-sync-item*"])


def test_the_marker_makes_the_test_a_region_and_its_fixtures_none(run):
    result = run(
        """
@pytest.fixture
def x(budget):
    value = torch.ones(3).to(budget.device)
    value.sum().item()
    return value

@pytest.mark.budget(host_reads=1)
def test_good(x):
    x.sum().item()

@pytest.mark.budget
def test_bad(x):
    x.sum().item()

@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.budget(host_reads=1)
def test_each(x, times):
    for _ in range(times):
        x.sum().item()
""",
        "--strict-markers",
    )
    result.assert_outcomes(passed=2, failed=2)


def test_steps_and_other_limits_of_the_fixture(run):
    result = run("""
def test_steps(budget):
    x = torch.ones(3, device=budget.device)
    guard = budget(host_reads=1, ops=2)
    with guard:
        for i in guard.steps(4):
            x.sum().item()
""")
    result.assert_outcomes(passed=1)


def test_a_failing_test_keeps_its_own_error(run):
    result = run("""
@pytest.mark.budget
def test_fails(budget):
    torch.ones(3, device=budget.device).sum().item()
    assert False, "mine"
""")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: mine*"])


def test_a_wrong_limit_is_an_error_of_the_test(run):
    result = run("""
@pytest.mark.budget(host_reads=-1)
def test_wrong():
    pass

@pytest.mark.budget(hostreads=1)
def test_misspelt():
    pass
""")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*host_reads=-1*"])


def test_the_marker_is_listed(run):
    run("", "--markers").stdout.fnmatch_lines(["*@pytest.mark.budget(host_reads=0*"])
