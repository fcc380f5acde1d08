"""The Adam of fits: torch's to the bit, hooks and saved state included, without torch's compiler."""

import subprocess
import sys
from pathlib import Path

import torch

from denizen.fit._adam import Adam, optimizer_of

ALONE = """
import sys, torch
from denizen.fit._adam import Adam
weights = torch.nn.Parameter(torch.ones(3))
optimizer = Adam([weights], lr=0.1)
optimizer.register_step_pre_hook(lambda *_: None)
(weights**2).sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


def test_it_is_torchs_adam_to_the_bit():
    torch.manual_seed(0)
    start, slopes = torch.randn(50), torch.randn(9, 50)
    ends = []
    for kind in (torch.optim.Adam, Adam):
        weights, called = torch.nn.Parameter(start.clone()), []
        optimizer = kind([weights], lr=0.1)
        optimizer.register_step_post_hook(lambda *_, called=called: called.append(1))
        for number, slope in enumerate(slopes):
            optimizer.zero_grad()
            (weights * slope).sum().backward()
            optimizer.step()
            if number == 4:
                saved = optimizer.state_dict()
                optimizer = kind([weights], lr=0.5)
                optimizer.load_state_dict(saved)
        ends.append((weights, optimizer.state_dict()["state"][0]))
        assert called == [1] * 5
    (one, ours), (other, theirs) = ends
    assert torch.equal(one, other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_it_loads_no_compiler():
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert done.stdout == "False\n"


def test_other_optimizers_are_made_as_they_are():
    weights = torch.nn.Parameter(torch.ones(2))
    assert type(optimizer_of(torch.optim.Adam, [weights], 0.1)) is Adam
    made = optimizer_of(torch.optim.SGD, [weights], 0.2)
    assert type(made) is torch.optim.SGD
    assert made.param_groups[0]["lr"] == 0.2
