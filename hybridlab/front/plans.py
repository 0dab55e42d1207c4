"""The cost of one plan of a training run: its step, its days, its parts; and the commands that start it elsewhere
(`lines`); lengths and costs of token slices (`slicing`); stages on submeshes (`on_submeshes`).
"""

from hybridlab.doors import AMOUNT, COUNT, POSITIVE, door, doors, span
from hybridlab.predict.launch import lines
from hybridlab.predict.launch.imported import imported
from hybridlab.predict.plans import slicing
from hybridlab.predict.plans.arithmetic import DAY, flops, training_seconds, training_seconds_exact
from hybridlab.predict.plans.by_schedule import by_schedule, seconds_of_clipping
from hybridlab.predict.plans.choice import days
from hybridlab.predict.plans.measured import by_step
from hybridlab.predict.plans.on_submeshes import Submesh, on_submeshes, pipeline_length, submeshes
from hybridlab.predict.plans.partition import partition
from hybridlab.predict.plans.performance import FITTED, Step, step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.ranges import refuse_cluster, refuse_plan
from hybridlab.predict.plans.replicated import replicated

__all__ = [
    "DAY",
    "FITTED",
    "Plan",
    "Step",
    "Submesh",
    "by_schedule",
    "by_step",
    "days",
    "flops",
    "imported",
    "lines",
    "partition",
    "pipeline_length",
    "replicated",
    "seconds_of_clipping",
    "slicing",
    "step",
    "submeshes",
    "training_seconds",
    "training_seconds_exact",
    "on_submeshes",
]

by_schedule, by_step, days, seconds_of_clipping, step = doors(
    by_schedule, by_step, days, seconds_of_clipping, step, plan=refuse_plan, batch=COUNT, seconds=POSITIVE
)
training_seconds, training_seconds_exact = doors(
    training_seconds, training_seconds_exact, tokens=POSITIVE, parameters=POSITIVE, devices=COUNT, rate=POSITIVE
)
flops = door(flops, batch=COUNT, further=span(0, 16, "give a number from 0 to 16"))
imported, replicated = doors(imported, replicated, context=COUNT)
on_submeshes, submeshes = doors(
    on_submeshes, submeshes, layers=span(1, 1000, "give a number from 1 to 1000"), cluster=refuse_cluster,
    microbatches=COUNT,
)  # fmt: skip
partition, pipeline_length = doors(partition, pipeline_length, weights=AMOUNT, seconds=AMOUNT, microbatches=COUNT)
