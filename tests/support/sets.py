"""Tiny sets in the layouts that the real ones are distributed in."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision.datasets import CIFAR10, CIFAR100, SVHN

CINIC10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def write_image(path: Path, pixels: np.ndarray, **settings: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **settings)
    return path


def write_cifar10(root: Path, patch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Six batch files of 4 images; torchvision is told their checksums in place of the published ones."""
    images, labels = noise(0, 24, 3, 32, 32), np.arange(24) % 10
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    sums = {}
    for k, name in enumerate(names):
        part = slice(4 * k, 4 * k + 4)
        batch = {"data": images[part].reshape(4, -1), "labels": labels[part].tolist()}
        sums[name] = write_pickle(root / "cifar-10-batches-py" / name, batch)
    classes = {"label_names": [f"class {label}" for label in range(10)]}
    sums["batches.meta"] = write_pickle(root / "cifar-10-batches-py" / "batches.meta", classes)
    patch.setattr(CIFAR10, "train_list", [[name, sums[name]] for name in names[:5]])
    patch.setattr(CIFAR10, "test_list", [["test_batch", sums["test_batch"]]])
    patch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": sums["batches.meta"]})
    return {"train_x": images[:20], "train_y": labels[:20], "test_x": images[20:], "test_y": labels[20:]}


def write_cifar100(root: Path, patch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """One training and one test file, labels fine and coarse."""
    made, sums = {}, {}
    for seed, name in enumerate(("train", "test")):
        made[f"{name}_x"], made[f"{name}_y"] = noise(seed, 6, 3, 32, 32), np.arange(6) * 17 % 100
        batch = {
            "data": made[f"{name}_x"].reshape(6, -1),
            "fine_labels": made[f"{name}_y"].tolist(),
            "coarse_labels": [0] * 6,
        }
        sums[name] = write_pickle(root / "cifar-100-python" / name, batch)
    classes = {"fine_label_names": [f"fine {label}" for label in range(100)], "coarse_label_names": ["coarse"]}
    sums["meta"] = write_pickle(root / "cifar-100-python" / "meta", classes)
    patch.setattr(CIFAR100, "train_list", [["train", sums["train"]]])
    patch.setattr(CIFAR100, "test_list", [["test", sums["test"]]])
    patch.setattr(CIFAR100, "meta", {**CIFAR100.meta, "md5": sums["meta"]})
    return made


def write_svhn(root: Path, patch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Two .mat files, images [32, 32, 3, N], labels 1 to 10, of which 10 is the digit 0."""
    made, parts = {}, {}
    for seed, name in enumerate(("train", "test")):
        images, labels = noise(seed, 12, 3, 32, 32), np.arange(12) % 10
        path = root / f"{name}_32x32.mat"
        root.mkdir(parents=True, exist_ok=True)
        savemat(
            path, {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)}
        )
        parts[name] = ["", path.name, hashlib.md5(path.read_bytes()).hexdigest()]
        made[f"{name}_x"], made[f"{name}_y"] = images, labels
    patch.setattr(SVHN, "split_list", parts)
    return made


def write_cinic10(home: Path) -> dict[str, np.ndarray]:
    """Two PNGs a class in each of train/, valid/ and test/: the images of each part, in the order of classes and names."""
    made = {part: noise(seed, 20, 32, 32, 3) for seed, part in enumerate(("train", "valid", "test"))}
    for part, images in made.items():
        for place, pixels in enumerate(images):
            write_image(home / part / CINIC10[place // 2] / f"{place % 2}.png", pixels)
    return made


def write_tinyimagenet(home: Path) -> None:
    """Three classes, two training JPEGs each, of which one is grey; four validation JPEGs with their annotations."""
    wnids = ["n03", "n01", "n02"]
    home.mkdir(parents=True)
    (home / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (home / "words.txt").write_text("n01\tcrane, wading bird\nn02\tcrane\nn03\tpier, wharf\nn99\tnot here\n")
    for seed, wnid in enumerate(wnids):
        for k in range(2):
            grey = (seed, k) == (0, 0)
            pixels = noise(10 * seed + k, 64, 64) if grey else noise(10 * seed + k, 64, 64, 3)
            write_image(home / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", pixels)
    lines = []
    for k, wnid in enumerate(["n02", "n03", "n01", "n02"]):
        write_image(home / "val" / "images" / f"val_{k}.JPEG", noise(100 + k, 64, 64, 3))
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t32\t44\t62")
    (home / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def write_pickle(path: Path, value: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value, protocol=2))
    return hashlib.md5(path.read_bytes()).hexdigest()
