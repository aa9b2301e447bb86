"""Engines: what turns token ids into sampled token ids. `base` has the protocol."""
