"""Shapes in the signatures are checked while the tests run; at run time they cost nothing."""

from __future__ import annotations

import os

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.support import shapes

install_import_hook("infogaze", f"{shapes.__name__}.checked")

# One thread a process: threads that wait for each other on busy cores make small operations a hundred times slower.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
# On some processors oneDNN's bfloat16 products of very small matrices fail in its newest instructions; it is told to keep to the older.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Deadlines are wall-clock time, which a busy machine stretches at will.
settings.register_profile("infogaze", deadline=None, max_examples=25)
settings.load_profile("infogaze")
