"""YOLOv8 (Ultralytics): C2f blocks, whose neck has no residuals; anchor-free head; NMS."""

from models.ultralytics.anchor_free import AnchorFree

FAMILY = AnchorFree(block="C2f")
