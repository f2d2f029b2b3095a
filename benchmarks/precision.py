"""What storing weights in fewer bits costs: model size and accuracy by precision.

    python benchmarks/precision.py --data FOLDER [--systems xr-linear dismec]

A system's classifier is trained once in float32 with the system's defaults; the same weights are
then stored in each precision and asked for the test part's five best labels. Accuracy is in %,
size in MiB of the saved folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import megalabel
from linear import ACCURACY, K, load
from megalabel import store, systems
from megalabel.linear import ChunkedWeights, OneVsAll
from megalabel.linear.chunks import PRECISIONS


def stored(level: ChunkedWeights, precision: str) -> ChunkedWeights:
    """The same weights in another precision."""
    return ChunkedWeights.build(level.to_csr(), level.child_starts_, precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a corpus with train and test")
    parser.add_argument("--systems", nargs="*", default=["xr-linear", "dismec"])
    args = parser.parse_args()
    data = load(args.data)
    counts = np.bincount(data.Y.indices, minlength=data.Y.shape[1])
    print("| corpus | system | precision | model MiB | predict s per 1,000 | P@1 / 3 / 5 | PSP@5 |")
    print("|---|---|---|---:|---:|---:|---:|")
    for name in args.systems:
        classifier = systems.create(name, precision="float32").classifier.fit(data.X, data.Y)
        trained = vars(classifier).copy()
        for precision in PRECISIONS:
            if isinstance(classifier, OneVsAll):
                classifier.weights_ = stored(trained["weights_"], precision)
            else:
                classifier.levels_ = [
                    [stored(level, precision) for level in levels] for levels in trained["levels_"]
                ]
            with tempfile.TemporaryDirectory() as folder:
                store.save(classifier, Path(folder, "model"))
                size = sum(f.stat().st_size for f in Path(folder, "model").iterdir()) / 2**20
            classifier.rank(data.X_test, K)
            before = time.process_time()
            ranking = classifier.rank(data.X_test, K)
            seconds = (time.process_time() - before) / len(ranking) * 1000
            found = megalabel.evaluate(
                ranking, data.Y_test, train_labels=(counts, data.Y.shape[0]), k=(1, 3, 5)
            )
            precisions = " / ".join(f"{100 * found[k]:.2f}" for k in ACCURACY[:3])
            print(
                f"| {args.data.name} | {name} | {precision} | {size:.1f} | {seconds:.3f} "
                f"| {precisions} | {100 * found['PSP@5']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
