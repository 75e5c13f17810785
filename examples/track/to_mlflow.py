#!/usr/bin/env python3
"""Shows a megatrain run in MLflow, while it runs or afterwards.

    pip install mlflow
    python3 examples/track/to_mlflow.py RUN [--uri sqlite:///mlflow.db] [--experiment megatrain] [--once]
    mlflow ui --backend-store-uri sqlite:///mlflow.db

Started again, it goes on where it ended: the run is found by the tag megatrain.run. Steps that a resumed run makes anew
are logged again at their step.
"""
import argparse
import time
from pathlib import Path

import mlflow
from mlflow.entities import Metric, Param

from follow import follow, settings

parser = argparse.ArgumentParser()
parser.add_argument("run", type=Path)
parser.add_argument("--uri", default="sqlite:///mlflow.db")
parser.add_argument("--experiment", default="megatrain")
parser.add_argument("--once", action="store_true", help="take what is there, and do not wait for more")
given = parser.parse_args()

path = given.run.resolve()
mlflow.set_tracking_uri(given.uri)
experiment = mlflow.set_experiment(given.experiment)
client = mlflow.MlflowClient()
known = client.search_runs([experiment.experiment_id], f"tags.`megatrain.run` = '{path}'")
after = -1
if known:
    run = known[0]
    after = max((m.step for m in client.get_metric_history(run.info.run_id, "train/loss")), default=-1)
else:
    run = client.create_run(experiment.experiment_id, run_name=path.name, tags={"megatrain.run": str(path)})
    client.log_batch(run.info.run_id, params=[Param(key, value[:500]) for key, value in settings(path).items()][:100])

try:
    for step, values in follow(path, after=after, once=given.once):
        now = int(time.time() * 1000)
        client.log_batch(run.info.run_id, metrics=[Metric(key, value, now, step) for key, value in values.items()])
    client.set_terminated(run.info.run_id)
except KeyboardInterrupt:
    print("the run goes on; start this again to follow it further")
