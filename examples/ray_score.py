"""Classify a folder of pictures on Ray, look by look: one row a picture, as Parquet.

Here on the cores of this machine; `ray.init(address="auto")` takes a cluster, where all machines see the folder. `infogaze.Scorer` is given
to `map_batches` as it is, and each worker process loads the model once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import infogaze


def main() -> None:
    """Read the arguments, score, print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", type=Path, help="a folder of PNG and JPEG files, those in the folders below it too")
    parser.add_argument("out", type=Path, help="folder of the Parquet files")
    parser.add_argument("--model", default="cifar10-plus", help="a bundled model's name, or its folder")
    parser.add_argument(
        "--num-cpus", type=int, default=None, help="processes at the same time; one a core if not given"
    )
    parser.add_argument("--batch-size", type=int, default=200, help="pictures at a time")
    given = parser.parse_args()
    try:
        import ray
        import ray.data
    except ImportError:
        raise SystemExit("this example needs Ray: pip install 'ray[data]'") from None

    ray.init(num_cpus=given.num_cpus, include_dashboard=False)
    home = given.pictures.resolve()
    paths = sorted(path for path in home.rglob("*") if path.suffix.lower() in {".png", ".jpg", ".jpeg"})
    # A picture is read where it is scored, and known by its path below the folder, so that the folder may be moved.
    rows = [{"id": path.relative_to(home).as_posix(), "image": str(path)} for path in paths]
    scorer = infogaze.Scorer(model=given.model)
    scored = ray.data.from_items(rows).map_batches(scorer, batch_size=given.batch_size)
    scored.write_parquet(str(given.out.resolve()))
    ray.shutdown()
    print(f"{len(rows)} pictures, their rows in {given.out}")


if __name__ == "__main__":
    main()
