"""Deformable DETR as one graph of any height and width: uint8 pixels to the best 100 pairs.

Only the exporting process imports this module: it needs torch. The published forward pass keeps
its feature maps' sizes in Python lists and tensors made from them, which the exporter freezes at
the traced size without a word (EXPORT.md, 1.3b). So the pass from feature maps to boxes is written
here anew, after the paper (Zhu et al. 2021, sections 4.1 and A.3), over the published layers: every
size stays symbolic, and the image fills the input, so that there is no mask and no valid ratio.
"""

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor  # type: ignore[import-not-found,unused-ignore]

from models.deformable_sampling import sampled
from models.errors import BundleError
from models.transformers_network import Outputs, pixels, sine_positions, top_pairs

KEPT_PAIRS = 100  # transformers' post-processing default, `top_k`
Sizes = list[tuple[int, int]]  # height and width of each feature level, in cells


class Network(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """model: `DeformableDetrForObjectDetection`, with or without iterative box refinement."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        if model.config.two_stage or model.config.position_embedding_type != "sine":
            raise BundleError(
                "two-stage Deformable DETR and learned position encodings are not supported"
            )
        self.published = model

    def published_pass(self, image: Tensor) -> Outputs:
        """What `forward` must equal: the published forward pass."""
        found = self.published(pixels(image, imagenet=True))
        return top_pairs(found.logits, found.pred_boxes, KEPT_PAIRS)

    def forward(self, image: Tensor) -> Outputs:
        """image: uint8 [1, H, W, 3] RGB."""
        detr = self.published.model
        maps = self._levels(pixels(image, imagenet=True))
        sizes = [(level.shape[2], level.shape[3]) for level in maps]
        memory = torch.cat([level.flatten(2).transpose(1, 2) for level in maps], 1)
        positions = torch.cat(
            [
                sine_positions(height, width, detr.config.d_model, shift=-0.5) + embedding
                for (height, width), embedding in zip(sizes, detr.level_embed, strict=True)
            ],
            1,
        )
        references = torch.cat([_centres(*size) for size in sizes], 1)
        for layer in detr.encoder.layers:
            attended = _attend(layer.self_attn, memory + positions, memory, references, sizes)
            memory = layer.self_attn_layer_norm(memory + attended)
            memory = layer.final_layer_norm(memory + layer.mlp(memory))
        logits, boxes = self._decode(memory, sizes)
        return top_pairs(logits, boxes, KEPT_PAIRS)

    def _levels(self, values: Tensor) -> list[Tensor]:
        """Feature maps float32 [1, D, h, w]: of the backbone, then ever coarser ones below it."""
        detr = self.published.model
        features = list(detr.backbone.model(values).feature_maps)
        maps = [project(each) for project, each in zip(detr.input_proj, features, strict=False)]
        coarsest = features[-1]
        for project in detr.input_proj[len(features) :]:
            coarsest = project(coarsest)
            maps.append(coarsest)
        return maps

    def _decode(self, memory: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
        """Logits float32 [1, Q, C] and boxes float32 [1, Q, 4] cxcywh of the last layer."""
        detr = self.published.model
        refiners = detr.decoder.bbox_embed
        queries, content = detr.query_position_embeddings.weight[None].chunk(2, dim=2)
        anchors = _logit(detr.reference_points(queries).sigmoid())  # x, y; with a box's size later
        before = anchors  # what the last layer's box is relative to
        for index, layer in enumerate(detr.decoder.layers):
            attended, _ = layer.self_attn(content, position_embeddings=queries)
            content = layer.self_attn_layer_norm(content + attended)
            attended = _attend(
                layer.encoder_attn, content + queries, memory, anchors.sigmoid(), sizes
            )
            content = layer.encoder_attn_layer_norm(content + attended)
            content = layer.final_layer_norm(content + layer.mlp(content))
            before = anchors
            if refiners is not None:
                anchors = _logit(_moved(refiners[index](content), anchors).sigmoid())
        moved = _moved(self.published.bbox_embed[-1](content), before)
        return self.published.class_embed[-1](content), moved.sigmoid()


def _centres(height: int, width: int) -> Tensor:
    """The cells' centres as fractions of the map: float32 [1, height * width, 2], x then y."""
    rows = (torch.arange(height, dtype=torch.float32) + 0.5) / height
    columns = (torch.arange(width, dtype=torch.float32) + 0.5) / width
    grid = [columns[None].expand(height, width), rows[:, None].expand(height, width)]
    return torch.stack(grid, -1).reshape(1, height * width, 2)


def _logit(fractions: Tensor) -> Tensor:
    """The inverse of the sigmoid, kept finite as the published code does (eps 1e-5)."""
    return torch.log(fractions.clamp(min=1e-5) / (1 - fractions).clamp(min=1e-5))


def _moved(delta: Tensor, anchors: Tensor) -> Tensor:
    """Box logits [1, Q, 4]: a head's output added to the anchors' logits, [1, Q, 2 or 4]."""
    known = anchors.shape[-1]
    return torch.cat([delta[..., :known] + anchors, delta[..., known:]], -1)


def _attend(
    attention: Any, queries: Tensor, memory: Tensor, references: Tensor, sizes: Sizes
) -> Tensor:
    """Multi-scale deformable attention (section 4.1): each query samples a few points of each
    level about its reference and adds them up, weighted.

    queries: float32 [1, Q, D], positions added; memory: float32 [1, S, D], the levels one after
    another; references: float32 [1, Q, 2 or 4], a point or a box (cxcywh) as fractions of the
    image. Returns float32 [1, Q, D].
    """
    heads, levels, points = attention.n_heads, attention.n_levels, attention.n_points
    count = queries.shape[1]
    depth = attention.d_model // heads
    values = attention.value_proj(memory)[0].reshape(-1, heads, depth)
    values = values.split([h * w for h, w in sizes])
    offsets = attention.sampling_offsets(queries).reshape(count, heads, levels, points, 2)
    weights = attention.attention_weights(queries).reshape(count, heads, levels * points)
    weights = weights.softmax(-1).reshape(count, heads, levels, points)
    point = references[0, :, None, None, :2]
    total = None
    for level, (height, width) in enumerate(sizes):
        if references.shape[-1] == 2:  # offsets are cells of the level
            # tensors straight from the symbolic sizes: `float(side)` would freeze them
            cells = torch.stack(
                [torch.tensor(side, dtype=torch.float32) for side in (width, height)]
            )
            step = offsets[:, :, level] / cells
        else:  # offsets are halves of the box, shared among the points
            step = offsets[:, :, level] / points * references[0, :, None, None, 2:] * 0.5
        added = sampled(values[level], (height, width), point + step, weights[:, :, level])
        total = added if total is None else total + added
    assert total is not None
    return attention.output_proj(total.flatten(1)[None])
