#!/usr/bin/env bash
# mlflow-skinny 3.17.2 with a SQLite database: the metrics and the end of a run
#
# Guess: a run's metric is the value that was logged last; each value is in its history; a program that ends with status 0
# has not failed.
# Behaviour: the metric is that of the highest step, and of values of one step and time the greatest; NaN at such a step stays.
# Equal values of one step and time are there once. Infinity is 1.8e308, and no search finds a run by NaN. `sys.exit(0)` within
# `start_run` makes it FAILED.
. "$(dirname "$0")/common.sh"
packages mlflow-skinny==3.17.2 SQLAlchemy==2.1.9 alembic==1.17.2

cat >log.py <<'PYTHON'
import sys
import mlflow
mlflow.set_tracking_uri("sqlite:///runs.db")
client = mlflow.MlflowClient()
experiment = client.create_experiment("rewards")
run = client.create_run(experiment).info.run_id
def log(name, *values):
    for step, value in values:
        client.log_metric(run, name, value, step=step, timestamp=1000)
    history = sorted(metric.value for metric in client.get_metric_history(run, name))
    print(client.get_run(run).data.metrics[name], *history)
log("resumed", (5, 1.0), (3, 2.0))
log("corrected", (0, 3.0), (0, 2.0))
log("twice", (0, 1.0), (0, 1.0))
log("missing", (1, float("nan")), (0, 1.0))
log("best", (0, float("inf")))
print(len(client.search_runs([experiment], "metrics.best > 0")), len(client.search_runs([experiment], "metrics.missing >= 0")))
try:
    with mlflow.start_run(experiment_id=experiment) as other:
        sys.exit(0)
except SystemExit:
    print(client.get_run(other.info.run_id).info.status)
PYTHON
python log.py 2>errors >out || { cat errors >&2; exit 2; }
seen "step 5: 1, then step 3: 2; the metric, its history in order" "$(sed -n 1p out)" "1.0 1.0 2.0"
seen "3, then 2, for one step" "$(sed -n 2p out | cut -d' ' -f1)" "3.0"
seen "1 twice" "$(sed -n 3p out)" "1.0 1.0"
seen "step 1: NaN, then step 0: 1" "$(sed -n 4p out | cut -d' ' -f1)" "nan"
seen "infinity" "$(sed -n 5p out | cut -d' ' -f1)" "1.7976931348623157e+308"
seen "runs with best > 0, with missing >= 0" "$(sed -n 6p out)" "1 0"
seen "a run that ends with sys.exit(0)" "$(sed -n 7p out)" "FAILED"
