"""`Target`: one served model under qualification, and what its stages have seen so far.

Its key says what a saved result depends on: a result of another bundle, threshold, config or
dataset is never taken up again.
"""

from dataclasses import dataclass, field
from typing import Any

from models.catalogue import Checkpoint
from models.criteria import Criteria
from qualification import reconcile, stages
from qualification.datasets.coco import Dataset
from qualification.evidence import Seen
from qualification.stages import StageResult

BELOW = "below"  # the key of detections down to below the served threshold


@dataclass
class Target:
    """described: by the model's replica. criteria: the family's, at the bounds in force. results:
    by stage."""

    name: str
    described: dict[str, Any]
    checkpoint: Checkpoint
    criteria: Criteria
    dataset: Dataset
    results: dict[str, StageResult] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        digest: str = self.described["bundle_digest"]
        return digest

    @property
    def key(self) -> str:
        served = (self.described[name] for name in reconcile.SERVED)
        return stages.digest(*served, self.dataset.digest)

    @property
    def thresholds(self) -> dict[str, float]:
        """What to detect down to, by the key under which it is kept: the served threshold and, in
        FP16, as far below it as two scores of one object may be apart."""
        served: float = self.described["threshold"]
        if self.described["precision"] != "fp16":
            return {"seen": served}
        return {"seen": served, BELOW: max(0.0, served - self.criteria.score)}

    @property
    def labels(self) -> dict[str, str] | None:
        """As `mean_ap` takes them: checkpoint label -> dataset category."""
        return getattr(self.checkpoint.dataset, "labels", None)

    def seen(self, stage: str, key: str = "seen") -> list[Seen]:
        return [Seen.from_json(value) for value in self.results[stage].data[key]]
