"""The training program of the demonstration distinguishes any number of classes."""

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from workers.demo import program
from workers.training.programs import run
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits


def test_three_classes_are_told_apart_as_by_scikit_learn() -> None:
    features, labels = load_iris(return_X_y=True)
    options = {"output": "safetensors", "threads": 1, "tolerance": None, "predict": None}
    config = {"classes": 3, "columns": 4, "script": {**program.document(), **options}}
    rows = FitRows(features, labels.astype(np.int64))
    file = run.execute(config, rows, Limits(seconds=60, memory=8 << 30))
    found = program.predict(file, features)
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    theirs = LogisticRegression().fit(scaled, labels).predict(scaled)
    assert (found == theirs).mean() > 0.95
    assert (found == labels).mean() > 0.93
