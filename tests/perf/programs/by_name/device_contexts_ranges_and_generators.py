"""Asks for CUDA by name: device contexts, ranges and generators."""

import torch


def make():
    torch.cuda.manual_seed_all(0)
    with torch.cuda.device(0):
        net = torch.nn.Linear(8, 8).cuda()
    drawn, state = torch.Generator(device="cuda").manual_seed(0), torch.cuda.get_rng_state()

    def noise(rows: int, generator: torch.Generator | None = None, where: torch.cuda.device | None = None):
        assert isinstance(generator, torch.Generator)
        assert not isinstance(where, torch.cuda.device)
        return torch.randn(rows, 8, device="cuda:0", generator=generator)

    x = noise(16, drawn)
    opt = torch.optim.Adam(net.parameters())

    def step():
        torch.cuda.nvtx.range_push("step")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch.cuda.nvtx.range_pop()
        torch.cuda.empty_cache()  # alloc-churn

    return step
