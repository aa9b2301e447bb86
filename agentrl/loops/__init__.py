"""The loops: train, evaluate, sft, verify; here plugins, services, rollouts and learner meet."""
