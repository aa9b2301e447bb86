"""Records: what a run writes down, and the statistics computed from it."""
