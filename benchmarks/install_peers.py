"""Install the peers of `simulate_cpu.py` and `cartpole_cpu.py`, each into an environment of its own under `.peers/`.

    python benchmarks/install_peers.py [starsim starsim-3.3 mesa jax sb3] [--minutes 10]

Plain pip, one environment a peer, so that none of them decides denizen's dependencies. A peer that does not install
within the time is reported and left out; the benchmark says so in its table. README.md says why AgentTorch is missing.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"

# Requirements of each environment. The major version is what the comparison is about; the result file records the rest.
REQUIREMENTS = {
    "starsim": ["starsim>=3,<4"],
    "starsim-3.3": ["starsim==3.3.4"],  # the version that the project's goal was measured with
    "mesa": ["mesa>=3,<4"],
    "jax": ["jax", "jaxlib"],
    "sb3": ["stable-baselines3>=2.7", "gymnasium>=1.1"],
}


def install(peer: str, minutes: float) -> str:
    """Make the environment; returns "ready" or one line that says why not."""
    folder = PEERS / peer
    ready = folder / ".ready"
    wanted = "\n".join(REQUIREMENTS[peer])
    if ready.is_file() and ready.read_text() == wanted:
        return "ready (was installed)"
    began = time.monotonic()
    log = PEERS / f"{peer}.log"
    PEERS.mkdir(exist_ok=True)
    python = folder / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--prefer-binary", *REQUIREMENTS[peer]],
    ]
    with log.open("w") as out:
        for command in commands:
            left = minutes * 60 - (time.monotonic() - began)
            try:
                done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=max(left, 1), check=False)
            except subprocess.TimeoutExpired:
                return f"not installed: took longer than {minutes:g} minutes (see {log})"
            if done.returncode:
                return f"not installed: pip failed (see {log})"
    ready.write_text(wanted)
    return f"ready ({time.monotonic() - began:.0f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="*", default=list(REQUIREMENTS), help=f"any of {', '.join(REQUIREMENTS)}")
    parser.add_argument("--minutes", type=float, default=10, help="limit for each peer (default 10)")
    args = parser.parse_args()
    unknown = set(args.peers) - set(REQUIREMENTS)
    if unknown:
        parser.error(f"unknown peer {sorted(unknown)[0]!r}; expected {', '.join(REQUIREMENTS)}")
    for peer in args.peers:
        print(f"{peer:12s}", install(peer, args.minutes), flush=True)


if __name__ == "__main__":
    main()
