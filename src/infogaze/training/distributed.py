"""Several processes, on one machine or many, started by torchrun: which part is whose, and how they agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import torch
from torch import distributed
from torch.distributed.rendezvous import rendezvous


def rank() -> int:
    """This process's number, from 0; 0 where it is alone."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def own_part(scenes: int) -> slice:
    """Which scenes of a global batch of this many are this process's."""
    each = scenes // world_size()
    return slice(rank() * each, (rank() + 1) * each)


@contextmanager
def processes(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes, and say which device is this one's. Alone unless torchrun started it."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # This module's functions have the group of all processes as a default from the moment it is first imported. Imported later,
    # they would keep the group and its threads to the interpreter's end, where such a thread can abort the process.
    import_module("torch.distributed.nn")
    store, number, count = next(rendezvous("env://"))
    # After a restart the store may still hold the addresses of processes that are gone.
    name = f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    attempt = distributed.PrefixStore(name, store)  # type: ignore[attr-defined]
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=attempt, rank=number, world_size=count)
    try:
        yield device
    finally:
        distributed.destroy_process_group()


@contextmanager
def first_process_first() -> Iterator[None]:
    """The block runs in rank 0, then in all others: what rank 0 writes to disk, the others find there."""
    if rank() > 0:
        distributed.barrier()
    yield
    if world_size() > 1 and rank() == 0:
        distributed.barrier()


def any_process(flag: bool, device: torch.device) -> bool:
    """Whether the flag is up in any process. All must ask."""
    if world_size() == 1:
        return flag
    raised = torch.tensor(float(flag), device=device)
    distributed.all_reduce(raised, distributed.ReduceOp.MAX)
    return bool(raised)
