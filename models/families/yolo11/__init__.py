"""YOLO11 (Ultralytics): C3k2 blocks with residuals, attention; anchor-free head; NMS."""

from models.precision import Islands
from models.ultralytics.anchor_free import AnchorFree
from models.ultralytics.onnx_form import HALF_ISLANDS

# Besides, the whole backbone up to the attention, and the head: with less, yolo11n moves a side by
# 4.3 px on an H200 (docs/decisions/half-precision.md).
ISLANDS = Islands(names=(*HALF_ISLANDS.names, r"\bmodel\.[0-8][./]", r"\bmodel\.23[./]"))

FAMILY = AnchorFree(block="C3k2", islands=ISLANDS)
