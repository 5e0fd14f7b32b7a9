"""How usual glimpses are, against those of the training images: what a model says of scenes unlike any of them means nothing.

The score of a glimpse is the squared Mahalanobis distance of its features from their mean in training, over their number: 1 on average
there. It notices noise, test patterns and broken sensors, not other objects: these look much like those of training, glimpse by glimpse.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

FEWEST = 100
"""Scenes that it takes to tell what is usual."""
_FOLDS = 5
_SMALLEST_SPREAD = 1e-3
"""Of a feature, as a share of their mean: one that never varies can still be told from another value."""


@dataclass(frozen=True)
class Typicality:
    """The features of training glimpses, as far as a Gaussian describes them."""

    mean: Float[Tensor, " f"]
    whitening: Float[Tensor, "f f"]
    """Times the deviation from the mean, it gives unit variance and no correlation."""
    threshold: float
    """Scenes with a larger mean score are out of distribution; of training scenes hardly any has one."""

    def score(self, content: Float[Tensor, "*batch f"]) -> Float[Tensor, "*batch"]:
        """1 on average over training glimpses; more is less usual."""
        deviation = content.to(self.mean.dtype) - self.mean
        return (deviation @ self.whitening.mT).square().mean(-1)

    def to(self, device: torch.device | str) -> Typicality:
        """The same on a device."""
        return Typicality(self.mean.to(device), self.whitening.to(device), self.threshold)


def fit_typicality(content: Float[Tensor, "N T f"], quantile: float = 0.999) -> Typicality | None:
    """From the glimpses of N training scenes, T each; None where these are too few.

    Statistics describe the scenes they were made of too well, so the threshold is read off scenes that were left out of them, a fifth at a
    time: `quantile` of these have a smaller mean score.
    """
    if len(content) < FEWEST:
        return None
    folds = torch.arange(len(content)) % _FOLDS
    scores = torch.cat(
        [_fitted(content[folds != fold]).score(content[folds == fold]).mean(1) for fold in range(_FOLDS)]
    )
    fitted = _fitted(content)
    threshold = float(torch.quantile(scores.double(), quantile))
    return Typicality(fitted.mean.float(), fitted.whitening.float().contiguous(), threshold)


def _fitted(content: Tensor) -> Typicality:
    """Mean and whitening in float64. Correlations are shrunk (Ledoit & Wolf, 2004): those of few glimpses are no good to invert."""
    from sklearn.covariance import ledoit_wolf  # takes long to import, and is needed in training alone

    flat = content.flatten(0, 1).double().cpu()
    mean, spread = flat.mean(0), flat.std(0)
    spread = spread.clamp(min=float(_SMALLEST_SPREAD * spread.mean()) or 1.0)
    correlation, _ = ledoit_wolf(((flat - mean) / spread).numpy(), assume_centered=True)
    factor = torch.linalg.cholesky(torch.from_numpy(correlation))
    whitening = torch.linalg.solve_triangular(factor, torch.diag(1.0 / spread), upper=False)
    return Typicality(mean.to(content.device), whitening.to(content.device), 0.0)
