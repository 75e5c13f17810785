#!/usr/bin/env python3
"""Shows a megatrain run in Weights & Biases, while it runs or afterwards.

    pip install wandb
    python3 examples/track/to_wandb.py RUN [--project megatrain] [--name NAME] [--mode online|offline] [--once]

Started again, it goes on where it ended, in the same run there: RUN/sent-to-wandb.json has its id and how far it came.
Offline every start makes a folder with what is new; `wandb sync` sends them into one run, in order.
"""
import argparse
from pathlib import Path

import wandb

from follow import Sent, follow, settings

parser = argparse.ArgumentParser()
parser.add_argument("run", type=Path)
parser.add_argument("--project", default="megatrain")
parser.add_argument("--mode", choices=["online", "offline"], default="online")
parser.add_argument("--name", help="of the run there; otherwise its directory's")
parser.add_argument("--once", action="store_true", help="take what is there, and do not wait for more")
given = parser.parse_args()

path = given.run.resolve()
sent = Sent(path, "wandb", given.project)
run = wandb.init(project=given.project, name=given.name or path.name, id=sent.id, resume="allow", mode=given.mode,
                 config=settings(path))
run.define_metric("step")
run.define_metric("*", step_metric="step")
try:
    for step, values in follow(path, sent, once=given.once):
        run.log({"step": step, **values}, step=sent.lines())  # W&B's own count, of which nothing may come twice
except KeyboardInterrupt:
    print("the run goes on; start this again to follow it further")
run.finish()
