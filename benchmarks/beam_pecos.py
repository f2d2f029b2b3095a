"""PECOS's side of benchmarks/beam.py, run by an interpreter that has libpecos installed.

    PYTHON benchmarks/beam_pecos.py FOLDER BEAM K REPEATS

FOLDER holds train_X.npz, train_Y.npz and test_X.npz. XR-Linear with its defaults is trained there
unless FOLDER/model exists; the answers go to FOLDER/pecos.npz, the times to standard output.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from pecos.utils import smat_util
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
from scipy.sparse import load_npz


def main() -> None:
    folder, (beam, k, repeats) = Path(sys.argv[1]), map(int, sys.argv[2:5])
    model_folder = folder / "model"
    if not model_folder.exists():
        X, Y = (load_npz(folder / f"train_{name}.npz") for name in "XY")
        vectors = LabelEmbeddingFactory.create(Y, X, method="pifa")
        chain = Indexer.gen(vectors, indexer_type="hierarchicalkmeans", seed=0, threads=2)
        model = XLinearModel.train(X, Y, C=chain, threads=2, threshold=0.1, beam_size=10)
        model.save(str(model_folder))
    model = XLinearModel.load(str(model_folder), is_predict_only=True)
    queries = load_npz(folder / "test_X.npz")

    def predict(rows):
        return model.predict(rows, beam_size=beam, only_topk=k, threads=1)

    batch = []
    for _ in range(repeats):
        begin = time.perf_counter()
        answer = predict(queries)
        batch.append(time.perf_counter() - begin)
    single = []
    for i in range(min(500, queries.shape[0])):
        row = queries[i]
        begin = time.perf_counter()
        predict(row)
        single.append(time.perf_counter() - begin)
    smat_util.save_matrix(str(folder / "pecos.npz"), answer)
    print(
        json.dumps(
            {
                "batch": statistics.median(batch),
                "single": statistics.median(single),
                "single_p99": float(np.quantile(single, 0.99)),
            }
        )
    )


if __name__ == "__main__":
    main()
