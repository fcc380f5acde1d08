"""Scripts that ask for CUDA by name, in the ways people do, examined from the command line without a GPU."""

import json
import re
import sys

import pytest
import torch

from denizen import app

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for CUDA where there is none")
MARK = re.compile(r"  # ([a-z0-9-]+)$")
SCRIPTS = {
    "at the top of the module": """
        import torch
        props = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        x = torch.randn(64, 8, device="cuda")
        net = torch.nn.Linear(8, 8).to(x.device)
        def make():
            def step():
                with torch.no_grad():
                    if net(x).isfinite().all():  # host-sync-bool
                        pass
            return step
        """,
    "streams, events and an index": """
        import torch
        def make():
            dev = torch.device("cuda", torch.cuda.current_device())
            side, net = torch.cuda.Stream(), torch.nn.Linear(8, 8, device=dev)
            batch = torch.randn(64, 8).pin_memory()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            def step():
                start.record()
                with torch.cuda.stream(side):
                    x = batch.cuda(non_blocking=True)
                torch.cuda.current_stream().wait_stream(side)
                with torch.no_grad():
                    net(x)
                end.record()
                torch.cuda.synchronize()  # host-sync-explicit
            return step
        """,
    "device contexts, ranges and generators": """
        import torch
        def make():
            torch.cuda.manual_seed_all(0)
            with torch.cuda.device(0):
                net = torch.nn.Linear(8, 8).cuda()
            drawn, state = torch.Generator(device="cuda").manual_seed(0), torch.cuda.get_rng_state()
            x = torch.randn(16, 8, device="cuda:0", generator=drawn)
            opt = torch.optim.Adam(net.parameters())
            def step():
                torch.cuda.nvtx.range_push("step")
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = net(x).square().mean()
                opt.zero_grad(); loss.backward(); opt.step()
                torch.cuda.nvtx.range_pop()
                torch.cuda.empty_cache()  # alloc-churn
            return step
        """,
    "an agent with lists": """
        import torch
        class Agent:
            def __init__(self, device="cuda:0"):
                self.device, self.q = device, torch.nn.Linear(4, 2).to(device)
            def act(self, state):
                state = torch.FloatTensor(state).unsqueeze(0).to(self.device)  # h2d-fresh
                with torch.no_grad():
                    return self.q(state).max(1)[1].item()  # host-sync-item
        def make():
            agent = Agent()
            return lambda: agent.act([0.0, 0.1, 0.2, 0.3])
        """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_finds_the_simulated_device(name, tmp_path, monkeypatch, capsys):
    lines = [line[8:] for line in SCRIPTS[name].strip("\n").splitlines()]
    (tmp_path / "script.py").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(sys, "argv", ["denizen", "doctor", f"{tmp_path}/script.py:make", "--json"])
    with pytest.raises(SystemExit):
        app.main()
    told = json.loads(capsys.readouterr().out)
    assert told["device"].startswith("simulated")
    marked = {(number, mark[1]) for number, line in enumerate(lines, 1) if (mark := MARK.search(line))}
    assert {(one["line"], one["kind"]) for one in told["findings"] if one["level"] != "note"} == marked
    assert not torch.cuda.is_available()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.Stream()
