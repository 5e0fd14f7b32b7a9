"""The training feed: a split as uint8 on the device, or streamed to it batch by batch where it does not fit.

The order of an epoch depends on the seed and the epoch alone, not on the device or the number of processes. Any of its
batches can be the first, so a run that resumes sees what it would have seen. Of a split with images that have no label, a phase is given
those that have one, or all, or batches of which half have one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Literal

import torch
from jaxtyping import Int, Integer, UInt8
from torch import Tensor

from infogaze.data.sets import NO_LABEL, Split
from infogaze.errors import InfogazeError

Scenes = Literal["labelled", "all", "half labelled"]
"""Which scenes of a split a phase is given."""
Examples = tuple[UInt8[Tensor, "B C H W"], Int[Tensor, " B"]]


class Feed:
    """Batches of a split on a device."""

    def __init__(self, split: Split, device: torch.device | str = "cpu", budget: int | None = None) -> None:
        """`budget`: bytes of images that may stay on the device; half its free memory unless given, all on the CPU."""
        self.device = torch.device(device)
        self.resident = budget is None and self.device.type == "cpu"
        """Whether the whole split stays on the device."""
        if not self.resident:
            allowed = torch.cuda.mem_get_info(self.device)[0] // 2 if budget is None else budget
            self.resident = split.images.nbytes <= allowed
        self._images = split.images.to(self.device) if self.resident else split.images
        self._labels = split.labels.to(self.device)
        self._labelled = (split.labels != NO_LABEL).nonzero().flatten().cpu()
        self._scenes: Scenes = "all"

    def of(self, scenes: Scenes) -> Feed:
        """The same images on the same device, of these scenes; where all have a label, they are the same for all."""
        if len(self._labelled) == 0 and scenes != "all":
            raise InfogazeError("no image of the training split has a label")
        other = copy(self)
        other._scenes = "all" if len(self._labelled) == len(self._labels) else scenes
        return other

    def __len__(self) -> int:
        return len(self._labelled) if self._scenes == "labelled" else len(self._labels)

    def steps(self, batch_size: int) -> int:
        """Batches in an epoch."""
        return len(self) // batch_size

    def batches(
        self, epoch: int, batch_size: int, *, seed: int, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Examples]:
        """The batches of an epoch from batch `start` on; what remains after the last full batch is left out.

        `batch_size` is that of all `world_size` processes together: the ranks' parts of step i, one after the other, are
        batch i of a single process.
        """
        if not 1 <= batch_size <= len(self):
            raise InfogazeError(f"the batch size is {batch_size}; it must be from 1 to the split's {len(self)} images")
        steps = self.steps(batch_size)
        if not 0 <= rank < world_size:
            raise InfogazeError(f"rank is {rank}; with {world_size} processes it must be from 0 to {world_size - 1}")
        if batch_size % world_size:
            raise InfogazeError(f"a batch of {batch_size} cannot be shared evenly by {world_size} processes")
        if not 0 <= start <= steps:
            raise InfogazeError(f"start is {start}; an epoch has {steps} batches")
        order = self._order(epoch, steps * batch_size, seed)[start * batch_size :]
        mine = order.view(steps - start, world_size, batch_size // world_size)[:, rank]  # [steps, B / world_size]
        return self._gather(mine) if self.resident else self._stream(mine)

    def _order(self, epoch: int, count: int, seed: int) -> Int[Tensor, " n"]:
        """The images of an epoch of so many, batch after batch."""
        if self._scenes == "labelled":
            return self._labelled[epoch_order(len(self._labelled), epoch, seed)[:count]]
        order = epoch_order(len(self._labels), epoch, seed)[:count]
        if self._scenes == "half labelled":
            # Every other one, as often over as it takes, so that every process has its half.
            half = -(-count // 2)
            passes = -(-half // len(self._labelled))
            again = [epoch_order(len(self._labelled), passes * epoch + one, seed + 1) for one in range(passes)]
            order[::2] = self._labelled[torch.cat(again)[:half]]
        return order

    def take(self, indices: Integer[Tensor, " B"]) -> Examples:
        """These images and labels, on the device."""
        labels = self._labels.index_select(0, indices.to(self.device))
        images = self._images.index_select(0, indices.to(self._images.device))
        return images.to(self.device), labels

    def _gather(self, order: Int[Tensor, "steps B"]) -> Iterator[Examples]:
        for indices in order.to(self.device):
            yield self.take(indices)

    def _stream(self, order: Int[Tensor, "steps B"]) -> Iterator[Examples]:
        """While the device works on one batch, a thread collects the next in memory that the device can copy from."""
        on_cuda = self.device.type == "cuda"
        shape = (order.shape[1], *self._images.shape[1:])
        buffers = [torch.empty(shape, dtype=torch.uint8, pin_memory=on_cuda) for _ in range(2)]
        copied: list[torch.cuda.Event | None] = [None, None]
        labels = self._labels[order.to(self.device)]  # [steps, B]

        def collect(step: int) -> None:
            if (event := copied[step % 2]) is not None:
                event.synchronize()  # The copy out of this buffer, two steps ago, may still be under way.
            torch.index_select(self._images, 0, order[step], out=buffers[step % 2])

        with ThreadPoolExecutor(1) as thread:
            coming = [thread.submit(collect, 0)] if len(order) else []
            for step in range(len(order)):
                coming.pop().result()
                if step + 1 < len(order):
                    coming.append(thread.submit(collect, step + 1))
                images = buffers[step % 2].to(self.device, non_blocking=True, copy=True)
                if on_cuda:
                    copied[step % 2] = torch.cuda.current_stream(self.device).record_event()
                yield images, labels[step]


def epoch_order(count: int, epoch: int, seed: int) -> Int[Tensor, " N"]:
    """The order of an epoch: a permutation drawn on the CPU from a hash of the seed and the epoch."""
    key = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:8], "big", signed=True))
    return torch.randperm(count, generator=generator)
