"""Figures and pages; one file a figure."""
