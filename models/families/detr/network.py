"""DETR as one graph: uint8 pixels to one box, score and class a query.

Only the exporting process imports this module: it needs torch. The published model's own modules
are called here without the pixel mask they are published with: the image fills the input, and a
mask of ones would leave a dozen shape and mask operators in the graph.
"""

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from models.errors import BundleError
from models.transformers_network import Outputs, best_real_class, pixels, sine_positions


class Network(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """model: `DetrForObjectDetection`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        if model.config.position_embedding_type != "sine":
            raise BundleError("only DETR checkpoints with sine position encodings are supported")
        self.published = model

    def published_pass(self, image: torch.Tensor) -> Outputs:
        """What `forward` must equal: the published forward pass."""
        found = self.published(pixels(image, imagenet=True))
        return best_real_class(found.logits, found.pred_boxes)

    def forward(self, image: torch.Tensor) -> Outputs:
        """image: uint8 [1, H, W, 3] RGB."""
        detr = self.published.model
        features = detr.backbone.model(pixels(image, imagenet=True)).feature_maps[-1]
        _, _, height, width = features.shape
        positions = sine_positions(height, width, detr.config.d_model, shift=0)
        memory = detr.input_projection(features).flatten(2).transpose(1, 2)
        for layer in detr.encoder.layers:
            memory = layer(memory, None, spatial_position_embeddings=positions)
        queries = detr.query_position_embeddings.weight[None]
        decoded = detr.decoder(
            inputs_embeds=torch.zeros_like(queries),
            spatial_position_embeddings=positions,
            object_queries_position_embeddings=queries,
            encoder_hidden_states=memory,
        ).last_hidden_state
        return best_real_class(
            self.published.class_labels_classifier(decoded),
            self.published.bbox_predictor(decoded).sigmoid(),
        )
