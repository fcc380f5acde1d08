"""Whether chains of a sampler have mixed, and what their draws are worth."""

import numpy as np


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
