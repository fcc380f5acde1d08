"""Mistakes in a file of a user's own: what the commands say of them, with the line."""

from pathlib import Path

import pytest

HEAD = Path(__file__).with_name("programs").joinpath("town.py")


@pytest.fixture
def told(denizen):
    """Run a command on the models and worlds of town.py with one more class: (exit code, stdout, stderr)."""

    def run(text, *words):
        Path("own.py").write_text(HEAD.read_text() + "\n\n" + text)
        return denizen(*words)

    return run


def line_of(part):
    lines = Path("own.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if part in line]
    return f"{Path('own.py').absolute()}:{number}"


RUN = ["run", "own.py:Own", "--steps", "2", "--replicates", "2"]
TRAIN = ["train", "own.py:Own", "--steps", "16", "--no-compile", "--set", "num_envs=2", "num_steps=8"]


@pytest.mark.parametrize(
    ("base", "method", "wanted"),
    [
        ("Flu", "init(self)", "init(self, rng)"),
        ("Flu", "step(self, now)", "step(self, now, rng)"),
        ("Flu", "step(self, now, action, rng)", "step(self, now, rng)"),
        ("Walk", "step(self, now, rng)", "step(self, now, action, rng)"),
        ("Walk", "observe(self)", "observe(self, now)"),
        ("Walk", "reward(self, now)", "reward(self, before, action, now)"),
        ("Walk", "terminated(self, now, *, limit)", "terminated(self, now)"),
        ("Walk", "draw(self)", "draw(self, now)"),
    ],
)
def test_a_method_that_takes_something_else_is_told_with_its_line(told, base, method, wanted):
    commands = [RUN if base == "Flu" else TRAIN]
    if method == "step(self, now)":
        commands += [["check", "own.py:Own"], ["bench", "own.py:Own"], ["doctor", "own.py:Own", "--device", "cpu"]]
    for words in commands:
        code, out, err = told(f"class Own({base}):\n    def {method}:  # WRONG\n        return now\n", *words)
        name = method.partition("(")[0]
        assert (code, out) == (2, "")
        assert err.splitlines()[-1] == (
            f"error Own.{name} at {line_of('# WRONG')} is {method}, expected {wanted}: write def {wanted}"
        )
        assert "denizen-error" not in err


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("class Own(Flu):\n    @staticmethod  # WRONG\n    def step(now):\n        return now\n", "(now)"),
        (
            "class Mixed:\n    def step(self, now):  # WRONG\n        return now\n\nclass Own(Mixed, Flu):\n    pass\n",
            "(self, now)",
        ),
        (
            "import functools\n\nclass Own(Flu):\n    def walk(self, now, rng, pace):  # WRONG\n        return now\n\n"
            "    step = functools.partialmethod(walk)\n",
            "(self, now, rng, pace)",
        ),
    ],
)
def test_methods_of_another_kind_are_told_in_the_same_way(told, text, takes):
    code, _, err = told(text, *RUN)
    wanted = "step(self, now, rng)"
    where = line_of("# WRONG")
    assert code == 2
    assert err.splitlines()[-1] == f"error Own.step at {where} is step{takes}, expected {wanted}: write def {wanted}"


def test_methods_of_another_kind_may_be_called_as_the_engine_does():
    import denizen as dz

    class Static(dz.Model):
        @staticmethod
        def step(now, rng):
            return now

        @classmethod
        def init(cls, rng):
            return rng

    assert Static().init(3) == Static().step(3, None) == 3


def test_a_series_of_another_form_is_told_with_its_line(told):
    code, _, err = told("class Own(Flu):\n    @dz.series  # WRONG\n    def sick(self):\n        return 1\n", *RUN)
    where = line_of("# WRONG")
    assert code == 2
    assert err.splitlines()[-1] == (
        f"error series Own.sick(self) at {where}: expected (self, now) or (self, before, now), or (self, events) for "
        "what rng.record noted"
    )


def test_methods_may_take_more_where_it_has_defaults(told):
    more = "class Own(Flu):\n    def step(self, now, rng, more=1, *rest, **others):\n        return now\n"
    assert told(more, *RUN)[0] == 0
    any_ = "class Own(Flu):\n    def step(self, *given):\n        return given[0]\n"
    assert told(any_, *RUN)[0] == 0


def test_a_method_in_place_of_a_value_is_told(told):
    text = "class Own(Walk):\n    def time_limit(self):  # WRONG\n        return 5\n"
    code, _, err = told(text, *TRAIN)
    assert code == 2
    where = line_of("# WRONG")
    assert (
        err.splitlines()[-1]
        == f"error Own.time_limit at {where} is a method, expected a value: write @property above it"
    )


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ("return now.nothing.sum()  # WRONG", "AttributeError: 'People' object has no attribute 'nothing'"),
        ("return now.ill.sum() + torch.ones(3) @ torch.ones(4)  # WRONG", "RuntimeError: "),
    ],
)
def test_an_error_within_a_series_is_told_with_its_line(told, body, last):
    code, _, err = told(f"class Own(Flu):\n    @dz.series\n    def sick(self, now):\n        {body}\n", *RUN)
    file, _, number = line_of("# WRONG").rpartition(":")
    assert code == 2
    assert f'File "{file}", line {number}, in sick' in err
    assert err.strip().splitlines()[-1].startswith(last)


def test_a_series_that_returns_no_tensor_is_told_with_its_line(told):
    code, _, err = told(
        "class Own(Flu):\n    @dz.series  # WRONG\n    def sick(self, now):\n        return 'abc'\n", *RUN
    )
    where = line_of("# WRONG")
    assert (code, err) == (
        2,
        f"error series 'sick' returned str 'abc'; expected a tensor, without .item() ({where})\n",
    )


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (
            "rng.randint('a', 0, 2) > 0",
            "AttributeError: rng has no 'randint'; did you mean 'integers'? valid: bernoulli, ",
        ),
        ("rng.rand('a') > 0", "AttributeError: rng has no 'rand'; did you mean 'uniform'? valid: bernoulli, "),
        ("rng.bernouli('a', 0.5)", "AttributeError: rng has no 'bernouli'; did you mean 'bernoulli'? valid: "),
        (
            "rng.bernoulli('a', torch.zeros(100, device='meta'))",
            "error rng.bernoulli('a'): prob lies on meta, the agents on cpu; keep it as a field of the model, which "
            "moves with it, or make it there: torch.zeros(…, device=now.time.step.device)",
        ),
    ],
)
def test_a_draw_that_cannot_be_is_told_with_its_line(told, draw, said):
    text = (
        f"class Own(Flu):\n    def step(self, now, rng):\n        return now.replace(ill=now.ill | {draw})  # WRONG\n"
    )
    code, _, err = told(text, *RUN)
    file, _, number = line_of("# WRONG").rpartition(":")
    assert code == 2
    assert f'File "{file}", line {number}, in step' in err
    assert err.strip().splitlines()[-1].startswith(said)


def test_only_a_world_with_pictures_is_offered_to_be_watched(told):
    plain = "class Own(Walk):\n    pass\n"
    code, out, _ = told(plain, *TRAIN, "--out", "r")
    assert (code, "denizen evaluate r " in out, "denizen watch" in out) == (0, True, False)
    code, out, _ = told(plain.replace("pass", "def draw(self, now):\n        return ['x']"), *TRAIN, "--out", "s")
    assert (code, "   or: denizen watch s " in out) == (0, True)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("'abc'", "returned str 'abc', expected a list of lines of text, or pixels: uint8 [height, width, 3]; .splitl"),
        (
            "now.x",
            "returned Tensor torch.float32 [], expected a list of lines of text, or pixels: uint8 [height, width",
        ),
        ("[1, 2]", "returned list [1, 2], expected a list of lines of text, or pixels: uint8 [height, width, 3]"),
    ],
)
def test_a_picture_that_is_none_is_told_with_its_line(told, returned, said):
    text = f"class Own(Walk):\n    def draw(self, now):  # WRONG\n        return {returned}\n"
    assert told(text, *TRAIN, "--out", "r")[0] == 0
    code, _, err = told(text, "watch", "r", "own.py:Own", "--steps", "1")
    assert (code, f"error Own.draw at {line_of('# WRONG')} {said}" in err) == (2, True)


def test_an_error_of_a_world_is_told_by_every_command_with_its_line(told):
    body = "return now.x[None] if self.size < 9 else now.nope  # WRONG"
    text = f"class Own(Walk):\n    def observe(self, now):\n        {body}\n"
    assert told(text, *TRAIN, "--out", "r")[0] == 0
    for words in (["evaluate", "--worlds", "2"], ["watch", "--steps", "2"]):
        code, _, err = told(text, words[0], "r", "own.py:Own", *words[1:], "--world", "size=9")
        assert (code, "# WRONG" in err, "denizen-error" in err) == (2, True, False)
        assert err.strip().splitlines()[-1] == "AttributeError: 'Pos' object has no attribute 'nope'"


def test_a_training_that_failed_says_how_to_go_on_with_its_file(told):
    body = "return (now.x + 1) * torch.nan"
    text = f"class Own(Walk):\n    def reward(self, before, action, now):\n        {body}\n"
    code, _, err = told(text, *TRAIN, "--out", "r")
    assert (code, f"go on with denizen resume r {Path('own.py').absolute()}:Own" in err) == (2, True)
