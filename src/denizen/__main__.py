"""`python -m denizen`, and so `torchrun -m denizen train …`."""

from denizen.app import process

if __name__ == "__main__":
    process()
