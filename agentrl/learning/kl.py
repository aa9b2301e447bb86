"""The adaptive coefficient of a KL penalty."""

from __future__ import annotations

import math


class AdaptiveKL:
    """Proportional controller that keeps the KL divergence from the reference policy near a target.

    `e = clip(KL / target - 1, -0.2, 0.2)`, `beta <- beta (1 + e min(n / horizon, 1))`, kept in [minimum, maximum].
    Ziegler et al. 2019, arXiv:1909.08593, section 2.2. The cap on n / horizon is ours: with n >= 5 horizon and a KL
    below its target the published update would turn the coefficient to 0 or negative.

    Units: `target` and the observed KL are nats per *rollout* (the mean over rollouts of the *sum* over sampled
    tokens of log pi - log pi_ref), `horizon` and n are rollouts. Other libraries take nats per token.

    `coefficient` is the value for the current batch: read it before `update`, which sets it for the next one.

    Example: `kl = AdaptiveKL(initial=0.2, target=6.0, horizon=10_000)`; per step, subtract `kl.coefficient * k1` from
    the token rewards, then `kl.update(observed_kl=4.1, n_rollouts=64)`.
    """

    def __init__(
        self, initial: float, target: float, horizon: float, *, minimum: float = 1e-6, maximum: float = 10.0
    ) -> None:
        if not 0 < minimum <= initial <= maximum:
            raise ValueError(f"need 0 < minimum <= initial <= maximum, got {minimum}, {initial}, {maximum}")
        if not (target > 0 and horizon > 0):
            raise ValueError(f"target and horizon must be positive, got {target} and {horizon}")
        self.coefficient = initial
        self.target = target
        self.horizon = horizon
        self.minimum = minimum
        self.maximum = maximum

    def update(self, observed_kl: float, n_rollouts: int) -> float:
        """Move the coefficient after a batch of `n_rollouts` with a mean KL of `observed_kl`; return the new one.

        Raises ValueError if `observed_kl` is not finite, since one NaN would stay in the coefficient for ever.
        """
        if not math.isfinite(observed_kl) or n_rollouts < 0:
            raise ValueError(f"need a finite KL and n_rollouts >= 0, got {observed_kl} and {n_rollouts}")
        error = min(max(observed_kl / self.target - 1.0, -0.2), 0.2)
        factor = 1.0 + error * min(n_rollouts / self.horizon, 1.0)
        self.coefficient = min(max(self.coefficient * factor, self.minimum), self.maximum)
        return self.coefficient

    def state(self) -> dict[str, float]:
        """What a checkpoint must hold to go on exactly."""
        return {"coefficient": self.coefficient}

    def load_state(self, state: dict[str, float]) -> None:
        """Take over what `state` returned."""
        self.coefficient = float(state["coefficient"])
