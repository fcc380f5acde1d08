"""`python -m denizen`, and so `torchrun -m denizen train …`."""

from denizen.app import main

if __name__ == "__main__":
    main()
