"""The first difference between two traces, in words, with the cause where it can be named."""

from __future__ import annotations

from determined.pytorch.verify_resume._trace import Event

_SHOWN = 8  # samples and names in a message

# What differs -> what is most likely wrong with it.
_CAUSES = {
    "optimizer": "is all its state in its state_dict, and does load_state_dict put it back?",
    "scheduler": "is all its state in its state_dict, and is it stepped once for each batch, epoch "
    "or validation, however often that was broken off?",
    "callback": "do its state_dict and load_state_dict cover all that its hooks change?",
    "weight": "something besides the optimizer writes to it, such as a hook of a validation",
    "requires_grad": "set it in the trial's __init__, or where every start of the run passes",
    "the mode": "set it in the trial's __init__, or where every start of the run passes",
    "the scaler": "is it updated outside of train_batch?",
    "learning rate": "something besides the wrapped schedulers sets it",
}


def first_unequal(expected: list[Event], found: list[Event]) -> str | None:
    """Say where two traces part, and over what; None if they do not."""
    for one, other in zip(expected, found, strict=False):
        if (one["stage"], one["batch"]) != (other["stage"], other["batch"]):
            return (
                f"the run was {where(other)} where it should have been {where(one)}: callbacks "
                "or periods depend on something other than the number of batches"
            )
        if one["samples"] != other["samples"]:
            return _other_samples(one, other)
        names = [n for n, value in one["digests"].items() if other["digests"].get(n) != value]
        if names or one["digests"].keys() != other["digests"].keys():
            names = names or sorted(one["digests"].keys() ^ other["digests"].keys())
            verb = "differs" if len(names) == 1 else "differ"
            return f"{where(one)}, {listed(names)} {verb}{_hint(one, names[0])}"
    if len(expected) != len(found):
        return f"{len(found)} steps were seen where {len(expected)} were expected"
    return None


def listed(names: list[str]) -> str:
    """Join the first names, and count the rest."""
    rest = len(names) - _SHOWN
    return (", ".join(names[:_SHOWN]) or "none") + (f" and {rest} more" if rest > 0 else "")


def _other_samples(one: Event, other: Event) -> str:
    expected, found = one["samples"] or [], other["samples"] or []
    pairs = enumerate(zip(expected, found, strict=False))
    position = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(found)))
    return (
        f"batch {one['batch']} has other samples: from position {position} on, "
        f"{listed(found[position:])} where {listed(expected[position:])} were expected. The "
        "sampler depends on more than the epoch"
    )


def where(event: Event) -> str:
    """Say where in training a stage is."""
    stage, batch = event["stage"], event["batch"]
    wordings = {
        "before": f"just before batch {batch} was fetched",
        "before validation": f"just before the validation after batch {batch}",
        "fetching": f"in fetching batch {batch}",
        "train_batch": f"in train_batch of batch {batch}",
        "forward": f"in the forward pass of batch {batch}",
        "backward": f"in the backward pass of batch {batch}",
        "before step": f"just before the optimizer's step in batch {batch}",
        "step": f"in the optimizer's step in batch {batch}",
        "scheduler": f"in a step of the schedulers after batch {batch}",
        "validation": f"in the validation after batch {batch}",
        "end": "at the end of training",
    }
    return wordings.get(stage) or f"in the callbacks' {stage}, batch {batch}"


def _hint(event: Event, name: str) -> str:
    stage = event["stage"]
    if name.startswith("batch") and event["samples"]:
        return (
            f": the same samples ({listed(event['samples'])}) gave different data, so their "
            "augmentation uses its own generator, or keeps state"
        )
    if name.startswith("batch"):
        return ": the loader gave different samples, a different order or different augmentation"
    if name.startswith("the random state") and stage.startswith("before"):
        return (
            ": something drew from it since the previous batch, such as a callback for reports, "
            "checkpoints or epochs, or code that runs only in a fresh process"
        )
    if name.startswith("the random state"):
        return (
            ": this stage drew a different number of random numbers than in the uninterrupted run"
        )
    return next((f": {cause}" for what, cause in _CAUSES.items() if name.startswith(what)), "")
