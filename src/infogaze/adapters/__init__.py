"""Other people's loops, driven by an agent: one file an ecosystem, each with an extra of its own."""
