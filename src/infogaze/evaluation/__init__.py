"""Measuring a trained agent; one file a measurement."""
