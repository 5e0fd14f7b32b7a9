"""Training in the paper's three phases."""
