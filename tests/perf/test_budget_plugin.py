"""The pytest plugin, as a project that installs denizen meets it."""

from pathlib import Path

import pytest
import torch._dynamo  # noqa: F401 - before any run, which drops what it imports; triton cannot be imported twice

import denizen as dz

pytest_plugins = ["pytester"]


PROGRAM = Path(__file__).with_name("programs") / "tests_with_budgets.py"


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("DENIZEN_DEVICE", "cpu")
    assert dz.budget(device="simulated").device  # skips the test where there cannot be one

    def run(chosen, *arguments):
        pytester.makepyfile(test_project=PROGRAM.read_text())
        return pytester.runpytest_inprocess("-p", "denizen_pytest", "-p", "no:denizen", "-k", chosen, *arguments)

    return run


def test_the_fixture_is_a_budget_that_fails_the_test(run):
    result = run("fixture_")
    result.assert_outcomes(passed=1, failed=1, deselected=8)
    result.stdout.fnmatch_lines(["*host_reads: 1, allowed 0*", "*test_project.py:*host-sync-item*"])


def test_the_marker_makes_the_test_a_region_and_its_fixtures_none(run):
    result = run("marker_", "--strict-markers")
    result.assert_outcomes(passed=2, failed=2, deselected=6)


def test_steps_and_other_limits_of_the_fixture(run):
    run("test_steps").assert_outcomes(passed=1, deselected=9)


def test_a_failing_test_keeps_its_own_error(run):
    result = run("test_fails")
    result.assert_outcomes(failed=1, deselected=9)
    result.stdout.fnmatch_lines(["*Failed: mine*"])


def test_a_wrong_limit_is_an_error_of_the_test(run):
    result = run("limit_")
    result.assert_outcomes(failed=2, deselected=8)
    result.stdout.fnmatch_lines(["*host_reads=-1*"])


def test_the_marker_is_listed(run):
    run("", "--markers").stdout.fnmatch_lines(["*@pytest.mark.budget(host_reads=0*"])
