"""Steps a second of the foraging world alone and of its evaluation; runs on CUDA (captured) and on the CPU.

    python benchmarks/foraging_gpu.py [--device cpu] [--worlds 192 8192] [--plain] [--tune] [--out F.json]

On CUDA the bits of the form in place are compared with those of the plain form first. `--plain` times the plain form;
`--tune` tries shapes of programs.
The original (goodharts_law at 9a3336d) on one H100: 0.11 / 2.6 / 3.2 M steps/s at 192 / 8,192 / 65,536 worlds; the
prototype of the specification (one Triton kernel a step, bf16 view): 58.6 / 421 / 505 M. World-only figures never stand
alone: `train_gpu.py --parts foraging` times the training. Random actions, drawn ahead; both grid lifetimes.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from train_gpu import synchronize, world_alone

import denizen as dz
from denizen.studies.foraging.evaluate import forage
from denizen.zoo.foraging import MODES, Foraging, foraging
from denizen.zoo.foraging.agents import OmniscientSeeker

WORLDS = {"cuda": (192, 8192, 65_536), "cpu": (192, 8192)}


def evaluation(count, device, steps, compile):
    """The evaluation of a written agent, whole, with what it takes to compile and capture."""
    env = foraging()
    began = time.perf_counter()
    found = forage(env, OmniscientSeeker(env), num_envs=count, steps=steps, device=device, compile=compile)
    synchronize(device)
    seconds = time.perf_counter() - began
    return {
        "part": f"evaluation {count:,} x {steps:,}",
        "steps_per_second": count * steps / seconds,
        "seconds": seconds,
        "compile": compile,
        "energy_per_1k": found.per_thousand("energy").value,
        "efficiency": found.efficiency.value,
    }


def same_bits(device, count, lifetime, mode, most=None, steps=80):
    """Whether both forms give the same bits of states and observations; raises where not."""
    env = foraging(mode, grid_lifetime=lifetime, steps=60)
    worlds = dz.rl.Worlds(env, count, device=device, max_resets=most)
    worlds.reset()
    plain, fast = worlds.run_state.tensors(), worlds.run_state.clone().tensors()
    waited = 0
    for number in range(steps):
        actions = torch.randint(0, env.action_space.n, (count,), device=device)
        run_state, wanted = worlds.advance(worlds.run_state_of(plain), actions)
        plain = run_state.tensors()
        fast, got = worlds.next_in_place(fast, actions)
        pairs = [*zip(plain, fast, strict=True), (wanted.reward, got.reward), (wanted.final_index, got.final_index)]
        pairs += [
            (wanted.observed.observation, got.observed.observation),
            (wanted.observed.privileged, got.observed.privileged),
        ]
        pairs += [(wanted.final.observation, got.final.observation)]
        wrong = [place for place, (a, b) in enumerate(pairs) if not torch.equal(a, b)]
        assert not wrong, (mode, lifetime, count, most, number, wrong)
        waited = int(run_state.waited.sum())
    return {
        "part": "same bits",
        "mode": mode,
        "lifetime": lifetime,
        "count": count,
        "max_resets": most,
        "waited": waited,
    }


def tuned(device, counts, rounds):
    """A warp a world, and shapes of programs: where every life that ends begins anew, and where an eighth may."""
    from denizen.zoo.foraging import _launch

    usual, least = _launch.shape, _launch.FEW
    for count in counts:
        for most in (count, None):
            _launch.FEW = count
            yield {"few": True} | world_alone(foraging(), count, device, rounds, max_resets=most)
        _launch.FEW = 0
        few = ((2, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 4), (16, 2))
        many = ((8, 1), (8, 2), (16, 1), (16, 2), (32, 1), (32, 2), (32, 4), (64, 4))
        for both in few if count <= 512 else many:
            _launch.shape = lambda n, both=both: usual(n)._replace(both=both)
            yield {"both": both} | world_alone(foraging(), count, device, rounds, max_resets=count)
        for act, renew in (
            ((32, 1), (8, 2)),
            ((32, 1), (16, 2)),
            ((32, 1), (32, 2)),
            ((32, 1), (32, 1)),
            ((32, 1), (32, 4)),
            ((64, 2), (16, 2)),
            ((128, 4), (16, 2)),
            ((128, 4), (32, 2)),
            ((128, 4), (32, 4)),
        ):
            _launch.shape = lambda n, act=act, renew=renew: usual(n)._replace(act=act, renew=renew)
            yield {"act": act, "renew": renew} | world_alone(foraging(), count, device, rounds)
        _launch.shape, _launch.FEW = usual, least


def measured(device, counts, rounds, plain):
    if device == "cuda" and not plain:
        for lifetime in ("persist", "life"):
            for mode in MODES:
                yield same_bits(device, 192, lifetime, mode)
            yield same_bits(device, 3000, lifetime, "ground_truth_handhold", 40)
            yield same_bits(device, 3000, lifetime, "proxy", 3000)
    for count in counts:
        for lifetime in ("persist", "life"):
            for most in (None, count):
                env = foraging(grid_lifetime=lifetime)
                yield {"grid_lifetime": lifetime} | world_alone(env, count, device, rounds, max_resets=most)
    for count in counts[:2] if device == "cuda" else counts[:1]:
        for compile in (False, True):
            yield evaluation(count, device, 16_384 if device == "cuda" else 512, compile)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--worlds", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.plain:
        Foraging.in_place = dz.Env.in_place
    machine = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    facts = {"machine": machine, "torch": torch.__version__, "threads": torch.get_num_threads()}
    if hasattr(os, "getloadavg"):
        facts["load"] = os.getloadavg()[0]
    print(facts, flush=True)
    rows = []
    counts = args.worlds or WORLDS[args.device]
    given = (
        tuned(args.device, counts, args.rounds) if args.tune else measured(args.device, counts, args.rounds, args.plain)
    )
    for row in given:
        rows.append(row)
        print(json.dumps(row), flush=True)
    if args.out:
        args.out.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
