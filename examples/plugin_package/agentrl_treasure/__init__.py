"""The environment `treasure`, and its verifier."""
