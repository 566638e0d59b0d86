"""YOLOS as one graph: uint8 pixels to one box, score and class a detection token.

Only the exporting process imports this module: it needs torch.
"""

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from models.transformers_network import Outputs, best_real_class, pixels


class Network(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """model: `YolosForObjectDetection`. Its position embeddings are resized (bicubic, which
    TensorRT lacks) to the traced size, a constant that folding computes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.published = model

    def published_pass(self, image: torch.Tensor) -> Outputs:
        """What `forward` must equal: the published forward pass."""
        found = self.published(pixels(image, imagenet=True))
        return best_real_class(found.logits, found.pred_boxes)

    def forward(self, image: torch.Tensor) -> Outputs:
        """image: uint8 [1, H, W, 3] RGB."""
        return self.published_pass(image)
