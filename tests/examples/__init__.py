"""Examples, run as they stand."""
