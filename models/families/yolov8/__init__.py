"""YOLOv8 (Ultralytics): C2f blocks, whose neck has no residuals; anchor-free head; NMS."""

from models.ultralytics.anchor_free import AnchorFree
from models.ultralytics.onnx_form import HALF_ISLANDS

FAMILY = AnchorFree(block="C2f", islands=HALF_ISLANDS)
