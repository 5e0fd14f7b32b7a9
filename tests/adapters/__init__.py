"""Adapters, against the libraries that they are for."""
