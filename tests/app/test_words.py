"""Words that a command does not understand: one line each, which ends with the help that says more."""

import pytest

# Words, and what is said of them before the help of the command.
WRONG = [
    (["run", "covid", "--stepz", "5"], "--stepz: denizen run has no such flag, did you mean --steps?"),
    (["run", "--stepz", "5"], "--stepz: denizen run has no such flag, did you mean --steps?"),
    (["train", "cartpole", "--step", "5"], "--step: denizen train has no such flag, did you mean --steps?"),
    (
        ["train", "cartpole", "--total-steps", "5"],
        "--total-steps: denizen train has no such flag, did you mean --steps?",
    ),
    (["train", "cartpole", "--total_step=5"], "--total_step: denizen train has no such flag, did you mean --steps?"),
    (["train", "cartpole", "--epochs", "5"], "--epochs: denizen train has no such flag, did you mean --total-epochs?"),
    (["train", "dotgat", "--epocs", "3"], "--epocs: denizen train dotgat has no such flag, did you mean --epochs?"),
    (["train", "dotgat", "--no-mem"], "--no-mem: denizen train dotgat has no such flag, did you mean --no-memory?"),
    (["evaluate", "--greed"], "--greed: denizen evaluate has no such flag, did you mean --greedy?"),
    (
        ["run", "sir_vaccination", "--campaign", "60@5"],
        "--campaign: denizen run has no such flag; interventions that --scale cannot say stand in a file: a class that "
        "takes over the model, with a property interventions, run as FILE.py:NAME;",
    ),
    (
        ["run", "sir", "--infect-rate", "1"],
        "--infect-rate: denizen run has no such flag; a parameter, setting or option of that name is given as --set "
        "infect_rate=VALUE;",
    ),
    (
        ["train", "cartpole", "--learning-rate", "1"],
        "--learning-rate: denizen train has no such flag; a parameter, setting or option of that name is given as "
        "--set learning_rate=VALUE;",
    ),
    (
        ["train", "cartpole", "--gravity", "1"],
        "--gravity: denizen train has no such flag; a parameter, setting or option of that name is given as --world "
        "gravity=VALUE;",
    ),
    (["show", "a", "--foo"], "--foo: denizen show has no such flag;"),
    (["run", "-n", "4"], "-n: denizen run has no such flag;"),
    (["show", "-foo"], "-foo: denizen show has no such flag;"),
    (["check", "-step", "3"], "-step: denizen check has no such flag, did you mean --steps?"),
    (["show", "a", "b"], "b: one word too many for denizen show;"),
    (
        ["run", "sir", "infect_rate=1"],
        "infect_rate=1: one word too many for denizen run; did you mean --set infect_rate=1?",
    ),
    (
        ["train", "cartpole", "gravity=1"],
        "gravity=1: one word too many for denizen train; did you mean --world gravity=1?",
    ),
    (["train", "cartpole", "--steps"], "--steps needs a value, N;"),
    (["run", "sir", "--seed", "--quiet"], "--seed needs a value, N;"),
    (["train", "cartpole", "--set"], "--set needs a value, NAME=VALUE;"),
    (["run", "--agents", "x"], "--agents: expected a whole number such as 5000, 500k, 1.5M or 1e3, got 'x';"),
    (["run", "--mean-degree", "nan"], "--mean-degree: expected a number such as 10 or 0.5, got 'nan';"),
    (["train", "dotgat", "--dropout", "x"], "--dropout: expected a number such as 10 or 0.5, got 'x';"),
    (["train", "cartpole", "--device", "gpu"], "--device gpu: did you mean 'cpu'? valid: auto, cpu, cuda;"),
    (["experiment", "nope"], "EXPERIMENT nope: valid: goodhart, learners;"),
    (["evaluate"], "denizen evaluate needs RUN;"),
    (["equivalent"], "denizen equivalent needs A and B;"),
    (["equivalent", "a.py"], "denizen equivalent needs B;"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_words_that_mean_nothing_are_one_line(denizen, words, said):
    code, out, err = denizen(*words)
    name = "train dotgat" if words[:2] == ["train", "dotgat"] else words[0]
    assert (code, out, err) == (2, "", f"error {said} denizen {name} --help\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["runn", "covid"], "there is no command 'runn'; did you mean 'run'? valid: "),
        (["covid"], "there is no command 'covid'; it is a model: denizen run covid;"),
        (["cartpole"], "there is no command 'cartpole'; it is a world: denizen train cartpole;"),
        (["a.py:B"], "there is no command 'a.py:B'; a command comes first, such as denizen run a.py:B or "),
        (["--quiet", "run", "covid"], "--quiet: a command comes first, one of hello, run, "),
        (["--foo"], "--foo: a command comes first, one of hello, run, "),
    ],
)
def test_a_first_word_that_is_no_command_is_one_line(denizen, words, said):
    code, out, err = denizen(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error {said}")
    assert err.endswith("; denizen --help\n")
    assert err.count("\n") == 1


def test_the_model_comes_before_pairs(denizen):
    assert (
        "--set sir: expected NAME=VALUE; the model, world or run folder comes before --set"
        in denizen("run", "--set", "infect_rate=1", "sir")[2]
    )
