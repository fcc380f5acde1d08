"""Steps with a wait or a copy in the middle, and the same mended: see _doctor_cases.py."""

import torch


def sized(device, cuda, other):
    return cuda if device.type == "cuda" else other


class Work:
    """About a millisecond of products, `heavy`, and small operations, `light`, launched without a loop."""

    def __init__(self, device):
        rows = sized(device, 4096, 64)
        self.a = torch.randn(rows, rows, device=device, dtype=torch.bfloat16) / rows**0.5
        self.x = torch.randn(sized(device, 1 << 20, 1 << 10), 4, device=device)
        self.mask = torch.arange(len(self.x), device=device) % 4 == 0
        self.small = torch.ones(8, device=device)

    def heavy(self):
        y = self.a
        for _ in range(6):
            y = self.a @ y
        return y.float().mean()

    def light(self):
        s = eight(eight(eight(eight(eight(eight(self.small))))))
        return eight(eight(eight(eight(eight(eight(s))))))


def eight(s):
    return s.mul(1.0).add(0.0).mul(1.0).add(0.0).mul(1.0).add(0.0).mul(1.0).add(0.0)


def between(work):
    """A maker of steps: `heavy`, what `work` does with its result, `light`."""

    def make(device):
        w, seen = Work(device), {}

        def step():
            work(w, w.heavy(), seen)
            return w.light()

        return step

    make.line = work
    return make


def nothing(w, y, seen):
    seen["y"] = y


def item(w, y, seen):
    seen["y"] = y.item()  # FAULT


def floated(w, y, seen):
    seen["y"] = 0.9 * float(y)  # FAULT


def nan_guard(w, y, seen):
    if torch.isnan(y):  # FAULT
        raise RuntimeError("diverged")


def synchronise(w, y, seen):
    torch.cuda.synchronize()  # FAULT


def metrics(w, y, seen):
    seen["y"] = y.cpu().numpy()  # FAULT


def printed(w, y, seen):
    seen["y"] = f"loss {y}"  # FAULT


def mask(w, y, seen):
    seen["y"] = w.x[w.mask].sum()  # FAULT


def mask_mended(w, y, seen):
    seen["y"] = torch.where(w.mask[:, None], w.x, 0.0).sum()


def places(w, y, seen):
    seen["y"] = w.x.index_select(0, w.mask.nonzero()[:, 0]).sum()  # FAULT


def repeated(w, y, seen):
    seen["y"] = torch.repeat_interleave(w.x[:1024], w.mask[:1024].long(), dim=0)  # FAULT


def repeated_mended(w, y, seen):
    seen["y"] = torch.repeat_interleave(w.x[:1024], w.mask[:1024].long(), dim=0, output_size=256)


def fresh(w, y, seen):
    seen["y"] = w.x + torch.zeros(*w.x.shape).to(w.x.device)  # FAULT


def fresh_mended(w, y, seen):
    seen["y"] = w.x + torch.zeros(*w.x.shape, device=w.x.device)


def roundtrip(w, y, seen):
    seen["y"] = torch.from_numpy(w.x[:65536].cpu().numpy()).to(w.x.device).flip(1)  # FAULT


def roundtrip_mended(w, y, seen):
    seen["y"] = w.x[:65536].flip(1)


def rollout(w, y, seen):
    rows = []
    for k in range(8):
        rows.append(w.x[k : k + 512].cpu())  # FAULT
    seen["y"] = rows


def rollout_mended(w, y, seen):
    rows = []
    for k in range(8):
        rows.append(w.x[k : k + 512])
    seen["y"] = torch.stack(rows)


def host_index(device):
    w = Work(device)
    order = torch.randperm(len(w.x))

    def step():
        w.heavy()
        rows = w.x[order]  # FAULT
        return rows, w.light()

    return step


def host_index_mended(device):
    w = Work(device)
    order = torch.randperm(len(w.x)).to(device)

    def step():
        w.heavy()
        return w.x[order], w.light()

    return step


def pageable(device, pin=False):
    w = Work(device)
    batch = torch.randn(*w.x.shape)
    batch = batch.pin_memory() if pin else batch

    def step():
        w.heavy()
        x = batch.to(device, non_blocking=True)  # FAULT
        return x, w.light()

    return step


def emptied(w, y, seen):
    seen["y"] = (w.x + 1).sum()
    torch.cuda.empty_cache()  # FAULT


def emptied_mended(w, y, seen):
    seen["y"] = (w.x + 1).sum()


def late_wait(device):
    """Work for much longer than its launches: the wait at the end costs almost nothing, and should be told so."""
    w, seen = Work(device), {}

    def step():
        w.light()
        y = w.heavy()
        seen["y"] = y.item()  # FAULT

    return step


def late_wait_mended(device):
    w = Work(device)

    def step():
        w.light()
        return w.heavy()

    return step
