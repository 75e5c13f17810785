#!/usr/bin/env python3
"""Shows a megatrain run in Weights & Biases, while it runs or afterwards.

    pip install wandb
    python3 examples/track/to_wandb.py RUN [--project megatrain] [--mode online|offline] [--once]

Started again, it goes on where it ended (offline it cannot know, and writes all steps anew). W&B draws over the run's
own "step", so that steps which a resumed run makes anew land at their place.
"""
import argparse
import hashlib
from pathlib import Path

import wandb

from follow import follow, settings

parser = argparse.ArgumentParser()
parser.add_argument("run", type=Path)
parser.add_argument("--project", default="megatrain")
parser.add_argument("--mode", choices=["online", "offline"], default="online")
parser.add_argument("--once", action="store_true", help="take what is there, and do not wait for more")
given = parser.parse_args()

path = given.run.resolve()
run = wandb.init(project=given.project, name=path.name, id=hashlib.sha1(str(path).encode()).hexdigest()[:16],
                 resume="allow", mode=given.mode, config=settings(path))
run.define_metric("step")
run.define_metric("*", step_metric="step")
try:
    for step, values in follow(path, after=run.summary.get("step", -1), once=given.once):
        run.log({"step": step, **values})
except KeyboardInterrupt:
    print("the run goes on; start this again to follow it further")
run.finish()
