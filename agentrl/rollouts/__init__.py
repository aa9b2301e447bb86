"""Rollouts: chat templates and tokens, engines, the async runner, scoring and reward composition."""
