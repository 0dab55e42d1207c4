"""The public surface as users type it in an editor. A type checker reads this file (`test_types`); nothing runs it."""

import hybridlab as hl


def predicted() -> float:
    """A schedule, simulated, drawn, lowered and compared."""
    one: hl.Schedule = hl.schedule("interleaved", ranks=4, microbatches=8, chunks=2)
    timeline: hl.Timeline = hl.simulate(hl.validate(one), hl.Costs(F=1, B=2, latency=0.5), room=hl.Room(capacity=4))
    hl.draw(timeline)
    hl.check_rendezvous(hl.lower(one))
    best = hl.automatic(ranks=4, microbatches=8, limit=4)
    action: hl.Action = best.program[0][0]
    names: list[str] = sorted(hl.schedules())
    return timeline.length + len(names) + action.stage


def planned() -> float:
    """Plans of a model on a machine, and the memory of one."""
    shape = hl.Shape(layers=8, width=512, heads=8, routing=hl.Routing(scores="softmax"))
    found = hl.plan("gpt3-175b", "a100", gpus=96, batch=96, contexts=True)
    return found.best.step.total + hl.memory(shape, batch=8, p=2, t=2, recompute="full").total


def proved() -> bool:
    """A division of a model, checked, tried dry, run and trained."""
    mesh = hl.Mesh(pp=2, dp=2)
    report = hl.check(mesh, "1f1b", microbatches=4, zero=1, dtype="float64")
    dry = hl.dry_run(mesh, "1f1b", microbatches=4)
    timeline = hl.run(hl.schedule("gpipe", ranks=2, microbatches=4))
    hl.train(mesh, "1f1b", microbatches=4, steps=2, optimizer="adamw", rate=0.01)
    return report.ok and bool(dry.fits) and timeline.length > 0
