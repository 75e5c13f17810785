#!/usr/bin/env python3
"""Shows a megatrain run in MLflow, while it runs or afterwards.

    pip install mlflow
    python3 examples/track/to_mlflow.py RUN [--uri sqlite:///mlflow.db] [--experiment megatrain] [--name NAME]
        [--once]
    mlflow ui --backend-store-uri sqlite:///mlflow.db

Started again, it goes on where it ended, in the same run there: RUN/sent-to-mlflow.json has its tag megatrain.run and how
far it came.
"""
import argparse
import time
from pathlib import Path

import mlflow
from mlflow.entities import Metric, Param

from follow import Sent, follow, settings

parser = argparse.ArgumentParser()
parser.add_argument("run", type=Path)
parser.add_argument("--uri", default="sqlite:///mlflow.db")
parser.add_argument("--experiment", default="megatrain")
parser.add_argument("--name", help="of the run there; otherwise its directory's")
parser.add_argument("--once", action="store_true", help="take what is there, and do not wait for more")
given = parser.parse_args()

path = given.run.resolve()
mlflow.set_tracking_uri(given.uri)
experiment = mlflow.set_experiment(given.experiment)
client = mlflow.MlflowClient()
sent = Sent(path, "mlflow", f"{given.uri} {given.experiment}")
known = client.search_runs([experiment.experiment_id], f"tags.`megatrain.run` = '{sent.id}'")
if known:
    run = known[0]
else:
    sent.forget()  # the database is new, or the run was deleted there
    run = client.create_run(experiment.experiment_id, run_name=given.name or path.name, tags={"megatrain.run": sent.id})
    client.log_batch(run.info.run_id, params=[Param(key, value[:500]) for key, value in settings(path).items()][:100])

try:
    for step, values in follow(path, sent, once=given.once):
        now = int(time.time() * 1000)
        client.log_batch(run.info.run_id, metrics=[Metric(key, value, now, step) for key, value in values.items()])
    client.set_terminated(run.info.run_id)
except KeyboardInterrupt:
    print("the run goes on; start this again to follow it further")
