"""Several processes, on one machine or many, started by torchrun: who has which share, and how they agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import torch
from torch import distributed
from torch.distributed.rendezvous import rendezvous

from infogaze.training.step import Share


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[Share, torch.device]]:
    """This process's share and device. Alone unless torchrun started it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Share(), device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # This module's functions have the group of all processes as a default from the moment it is first imported. Imported later,
    # they would keep the group and its threads to the interpreter's end, where such a thread can abort the process.
    import_module("torch.distributed.nn")
    store, rank, world = next(rendezvous("env://"))
    # After a restart the store may still hold the addresses of processes that are gone.
    name = f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    attempt = distributed.PrefixStore(name, store)  # type: ignore[attr-defined]
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=attempt, rank=rank, world_size=world)
    try:
        yield Share(rank, world), device
    finally:
        distributed.destroy_process_group()


@contextmanager
def first_process_first(share: Share) -> Iterator[None]:
    """The block runs in rank 0, then in all others: what rank 0 writes to disk, the others find there."""
    if share.world > 1 and share.rank > 0:
        distributed.barrier()
    yield
    if share.world > 1 and share.rank == 0:
        distributed.barrier()


def any_process(flag: bool, share: Share, device: torch.device) -> bool:
    """Whether the flag is up in any process. All must ask."""
    if share.world == 1:
        return flag
    told = torch.tensor(float(flag), device=device)
    distributed.all_reduce(told, distributed.ReduceOp.MAX)
    return bool(told)
