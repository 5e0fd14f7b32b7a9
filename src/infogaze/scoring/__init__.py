"""Many scenes: one callable for batches of them, where they come from, and the files that their rows go into."""
