"""Where the repository is, for tests that run its own files."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
