"""Learning: from a batch of scored rollouts to an updated policy."""
