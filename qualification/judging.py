"""Judging: from what a stage saw to its gates' verdicts, and nothing else.

Pure, and apart from what runs the stages, so that `scripts/rejudge.py` comes to the same verdicts
from a saved run, on a machine that has neither the models nor their images.
"""

from collections.abc import Mapping
from typing import Any

from models.errors import DetserveError
from models.family import family
from qualification import gates, probes, reconcile, statistics
from qualification.aiperf import AIPerfEvidence
from qualification.gates import Gate, HalfCase
from qualification.mean_ap import MeanAP, mean_ap
from qualification.probes import ProbeEvidence
from qualification.stages import StageResult
from qualification.statistics import Agreement, MapDifferences, Statistics
from qualification.target import BELOW, Target

Data = dict[str, Any]

# Stages that look at nothing but what others saw.
COMPUTED = ("owning-case", "dataset")


def on_disk(found: str | DetserveError) -> Data:
    """What the replica found in the bundle's folder: its digest, or why it does not verify."""
    if isinstance(found, DetserveError):
        return {"digest": None, "problem": str(found)}
    return {"digest": found, "problem": None}


def compute(target: Target, stage: str) -> Data:
    """What a stage of `COMPUTED` states besides its verdicts."""
    labels = target.labels
    native, reference = target.seen("native"), target.seen("reference")
    if stage == "dataset":
        return {
            "native": mean_ap(target.dataset, native, labels).model_dump(),
            "reference": mean_ap(target.dataset, reference, labels).model_dump(),
            "differences": statistics.map_differences(
                target.dataset, native, reference, labels
            ).model_dump(),
        }
    agreement = statistics.agreement(
        target.criteria,
        native,
        target.described["labels"],
        reference,
        target.results["reference"].data["labels"],
        target.described["threshold"],
    )
    return {"agreement": agreement.model_dump()}


def explain(name: str, results: Mapping[str, StageResult]) -> Statistics:
    """The statistics of a row. name: of the family. results: `owning-case`'s, and `dataset`'s if
    it was run."""
    agreement = Agreement.model_validate(results["owning-case"].data["agreement"])
    differences = None
    if "dataset" in results:
        differences = MapDifferences.model_validate(results["dataset"].data["differences"])
    return agreement.summary(family(name).criteria.at_least, differences)


def judge(target: Target, stage: str, data: Data) -> list[Gate]:
    """The gates of `stage`, which saw `data`; the target has the results that it needs besides
    (`stages.NEEDS`)."""
    if stage in ("native", "reference"):
        return []
    if stage in ("bundle", "bundle-after"):
        found = data["on_disk"]
        gate = gates.bundle(stage, target.digest, found["digest"], found["problem"])
        if stage == "bundle-after":
            before = target.results["bundle"].data["described"]
            return [gate, reconcile.unchanged(before, data["described"])]
        listed = data["listed"]
        return [gate, reconcile.reconciliation(target.checkpoint, data["described"], listed)]
    if stage == "owning-case":
        return [_owning_case(target)]
    if stage == "dataset":
        native, reference = (MeanAP.model_validate(data[side]) for side in ("native", "reference"))
        return gates.dataset(native, reference, target.checkpoint.gates)
    if stage == "identity":
        responses = [(status, body.encode()) for status, body in data["responses"]]
        return [gates.identity(target.seen("native"), responses)]
    if stage == "probes":
        return probes.gates(target.seen("native"), ProbeEvidence.model_validate(data))
    evidence = AIPerfEvidence.model_validate(data)
    return gates.aiperf(target.seen("native"), evidence, target.digest, stage)


def _owning_case(target: Target) -> Gate:
    half = None
    if BELOW in target.thresholds:
        native, reference = (target.seen(stage, BELOW) for stage in ("native", "reference"))
        half = HalfCase(native, reference, target.described["threshold"])
    return gates.owning_case(
        target.criteria,
        target.seen("native"),
        target.described["labels"],
        target.seen("reference"),
        target.results["reference"].data["labels"],
        half,
    )
