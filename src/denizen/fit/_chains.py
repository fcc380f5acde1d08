"""Chains that walk at random: their steps, whether they have mixed, what their draws are worth."""

from collections.abc import Sequence

import numpy as np

ACCEPTED = 0.25  # share of proposals that the width of the walk is adapted to
MIXED = 1.1  # scale reduction up to which chains have mixed


def scale_reduction(chains: np.ndarray) -> np.ndarray:
    """How much wider all halves of all chains lie together than each alone: 1 where they agree, `[P]`.

    The split form of Gelman et al. (Bayesian Data Analysis, 2013, section 11.4).

    Args:
        chains: `[chains, draws, P]`, at least 4 draws.
    """
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean(0)
    between = parts.mean(1).var(axis=0, ddof=1)
    apart = between > 1e-12 * np.maximum(within, 1e-300)
    still = within <= 0
    ratio = np.sqrt((half - 1) / half + between / np.where(still, 1, within))
    return np.where(still, np.where(apart, np.inf, 1.0), ratio)


def effective_draws(chains: np.ndarray) -> np.ndarray:
    """Independent draws that these are worth, `[P]`: Geyer's initial monotone sequence over all chains (1992).

    Args:
        chains: `[chains, draws, P]`, at least 4 draws.
    """
    num, length, _ = chains.shape
    rest = chains - chains.mean((0, 1))
    size = 2 * length
    spectrum = np.abs(np.fft.rfft(rest, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=1)[:, :length].mean(0) / length  # [draws, P]
    correlation = covariance / np.maximum(covariance[0], 1e-300)
    pairs = correlation[: length // 2 * 2].reshape(length // 2, 2, -1).sum(1)
    positive = np.cumprod(pairs > 0, axis=0)
    falling = np.minimum.accumulate(np.where(positive, pairs, 0), axis=0)
    time = np.maximum(2 * falling.sum(0) - 1, 1 / num)
    return np.minimum(num * length / time, num * length)


class Steps:
    """Steps of a random walk, which learns its width and its directions on the way.

    Attributes:
        seen: where the chains were when it learned, `[chains, P]` each.
    """

    def __init__(self, covariance: np.ndarray, generator: np.random.Generator) -> None:
        """Args: covariance: `[P, P]`, of what the chains look for, roughly; generator: of the steps."""
        self._covariance, self._generator = covariance, generator
        self._scale = 2.38 / np.sqrt(len(covariance))
        self.seen: list[np.ndarray] = []

    def directions(self, chains: int) -> np.ndarray:
        """Draws `[chains, P]` with that covariance."""
        normal = self._generator.normal(size=(chains, len(self._covariance)))
        return normal @ np.linalg.cholesky(self._covariance).T

    def proposed(self, at: np.ndarray) -> np.ndarray:
        """A place beside each."""
        return at + self._scale * self.directions(len(at))

    def learn(self, at: np.ndarray, accepted: float | None = None) -> None:
        """Width by the share that was accepted (Robbins and Monro), directions by where the last half of the walk was.

        Args:
            at: where the chains are.
            accepted: of the last proposals; None: the width stays.
        """
        self.seen.append(at.copy())
        if accepted is not None:
            self._scale *= np.exp((accepted - ACCEPTED) * len(self.seen) ** -0.5)
        late = np.concatenate(self.seen[len(self.seen) // 2 :])
        num = late.shape[1]
        if len(late) > 20 * num:
            self._covariance = np.cov(late.T).reshape(num, num) + 1e-6 * np.diag(np.diag(self._covariance))


def gain(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Differences of logarithms; from where nothing is likely each place is a gain, and where nothing is none is."""
    with np.errstate(invalid="ignore"):
        found = np.where(np.isfinite(old), new - old, np.inf)
    return np.where(np.isfinite(new), found, -np.inf)


def told(chains: np.ndarray, labels: Sequence[str], more: str) -> tuple[list[str], bool]:
    """Notes on chains `[chains, draws, P]`, and whether they have mixed.

    Args:
        chains: the draws.
        labels: of the numbers.
        more: what helps where they have not.
    """
    if chains.shape[1] < 4:
        return [f"{len(chains)} chains of {chains.shape[1]} draws: too few to say whether they have mixed."], False
    reduction, effective = scale_reduction(chains), effective_draws(chains)
    fewest, worst = int(np.argmin(effective)), int(np.argmax(reduction))
    notes = [
        f"{len(chains)} chains of {chains.shape[1]} draws, worth {effective[fewest]:,.0f} independent ones for "
        f"{labels[fewest]}."
    ]
    if reduction[worst] > MIXED:
        notes.append(
            f"The chains have not mixed: together they lie {reduction[worst]:.2f} times as wide as each alone for "
            f"{labels[worst]}. {more}"
        )
    return notes, bool(reduction[worst] <= MIXED)
