"""YOLO11 (Ultralytics): C3k2 blocks with residuals and attention; YOLOv8's head; NMS."""

from models.ultralytics.anchor_free import AnchorFree

FAMILY = AnchorFree(block="C3k2")
