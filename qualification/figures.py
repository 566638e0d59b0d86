"""What a row states beside its verdicts: mAP, statistics, latencies, the sweep's points.

Made from stage results alone, so that a campaign writes them and a saved run is held to them by the
same code.
"""

from collections.abc import Mapping

from qualification import judging, performance
from qualification.aiperf import QUALIFYING, AIPerfEvidence
from qualification.mean_ap import MeanAP
from qualification.results import ModelRow
from qualification.stages import STAGES, StageResult

STATED = ("native", "reference", "statistics", "performance", "sweep")


def state(row: ModelRow, results: Mapping[str, StageResult]) -> None:
    """Fill `STATED` of a row whose family is known. results: by stage, in the order they ran."""
    if "dataset" in results:
        data = results["dataset"].data
        row.native, row.reference = (
            MeanAP.model_validate(data[side]) for side in ("native", "reference")
        )
    if "owning-case" in results and row.family is not None:
        row.statistics = judging.explain(row.family, results)
    if QUALIFYING.name in results:
        evidence = AIPerfEvidence.model_validate(results[QUALIFYING.name].data)
        row.performance = performance.performance(evidence)
    row.sweep = [performance.sweep_point(results[name]) for name in results if name not in STAGES]
