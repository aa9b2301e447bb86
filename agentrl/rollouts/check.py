"""What rollouts cannot honour is refused before anything is written."""

from __future__ import annotations

from agentrl.api import ConfigError
from agentrl.config import Config
from agentrl.rollouts.rewards import check_reward


def check(config: Config) -> None:
    """Refuse settings of engine, rollout, reward and evaluation that do not go together."""
    check_reward(config.reward)
    if config.engine.max_new_tokens > config.rollout.max_tokens:
        raise ConfigError(
            f"engine.max_new_tokens = {config.engine.max_new_tokens} is above rollout.max_tokens = "
            f"{config.rollout.max_tokens}: one turn could never use it; raise the latter"
        )
    above = [k for k in config.eval.k if k > config.eval.samples]
    if above:
        raise ConfigError(f"eval.k = {above[0]} is above eval.samples = {config.eval.samples}: pass@k needs k samples")
