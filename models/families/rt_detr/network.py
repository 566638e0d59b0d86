"""RT-DETR as one graph: uint8 pixels to the best 300 pairs of query and class.

Only the exporting process imports this module: it needs torch.
"""

import copy
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from models.deformable_sampling import without_grid_sample
from models.transformers_network import Outputs, pixels, top_pairs


class Network(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """model: `RTDetrForObjectDetection`. As many pairs as queries, 300 in the published ones."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.published = model
        self.served = without_grid_sample(copy.deepcopy(model))

    def published_pass(self, image: torch.Tensor) -> Outputs:
        """What `forward` must equal: the published forward pass."""
        return _best(self.published, image)

    def forward(self, image: torch.Tensor) -> Outputs:
        """image: uint8 [1, H, W, 3] RGB."""
        return _best(self.served, image)


def _best(model: Any, image: torch.Tensor) -> Outputs:
    found = model(pixels(image, imagenet=False))
    return top_pairs(found.logits, found.pred_boxes, found.logits.shape[1])
