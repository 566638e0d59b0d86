"""What surrounds the network in a DETR-like graph: pixels in front, decoding behind.

Only the exporting process imports this module: it needs torch.

All boxes are fractions of the image, so a placement scales them by the source size.
"""

import math

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor  # type: ignore[import-not-found,unused-ignore]

from models.transformers_preprocessing import IMAGENET_MEAN, IMAGENET_STD

Outputs = tuple[Tensor, Tensor, Tensor]  # boxes, scores, class_ids of models/graph.py


def pixels(image: Tensor, *, imagenet: bool) -> Tensor:
    """The network's input, float32 [1, 3, H, W], from `image`, uint8 [1, H, W, 3] RGB.

    imagenet: normalise with ImageNet's mean and deviation after the division by 255.
    """
    values = image.to(torch.float32) * (1 / 255)  # cast first: TensorRT moves no uint8 about
    if imagenet:
        values = (values - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    return values.permute(0, 3, 1, 2)


def best_real_class(logits: Tensor, boxes: Tensor) -> Outputs:
    """One detection a query: softmax over the classes and no-object, then the best real class
    (DETR paper, section 3.1; no-object is the last column and never wins).

    logits: float32 [1, Q, C + 1]; boxes: float32 [1, Q, 4] cxcywh.
    """
    probabilities = logits.softmax(-1)[..., :-1]
    scores, classes = probabilities.max(-1)
    return corners(boxes), scores, classes.to(torch.int32)


def top_pairs(logits: Tensor, boxes: Tensor, count: int) -> Outputs:
    """The best `count` of all pairs of query and class by sigmoid; a query may give several
    (Deformable DETR's and RT-DETR's post-processing).

    logits: float32 [1, Q, C]; boxes: float32 [1, Q, 4] cxcywh.
    """
    _, queries, classes = logits.shape
    scores, chosen = logits.sigmoid().flatten(1).topk(min(count, queries * classes), dim=1)
    # looked up, not divided: exact in every engine and precision (FP16 ends at 65504)
    query_of_pair = torch.arange(queries).repeat_interleave(classes)
    class_of_pair = torch.arange(classes, dtype=torch.int32).repeat(queries)
    (chosen,) = chosen
    found = corners(boxes).index_select(1, query_of_pair.index_select(0, chosen))
    return found, scores, class_of_pair.index_select(0, chosen)[None]


def corners(boxes: Tensor) -> Tensor:
    """xyxy from cxcywh, [..., 4]."""
    centres, halves = boxes[..., :2], boxes[..., 2:] * 0.5
    return torch.cat([centres - halves, centres + halves], -1)


def sine_positions(height: int, width: int, features: int, *, shift: float) -> Tensor:
    """Sine and cosine position encodings of a feature map that the image fills: float32
    [1, height * width, features], rows first (DETR paper, A.4; scaled to 2 pi as its code does).

    shift: of the cells' coordinates 1, 2, ...; DETR 0, Deformable DETR -0.5 (cell centres).
    """
    half = features // 2
    # sine and cosine share a wavelength: 10000^(2i/half) for the i-th pair
    waves = 10000.0 ** (torch.arange(half // 2, dtype=torch.float32) * (2 / half))
    axes = []
    for size in (height, width):
        cells = torch.arange(1, size + 1, dtype=torch.float32) + shift
        angles = (cells / (size + 1e-6) * (2 * math.pi))[:, None] / waves
        axes.append(torch.stack([angles.sin(), angles.cos()], -1).flatten(1))  # [size, half]
    rows = axes[0][:, None].expand(height, width, half)
    columns = axes[1][None].expand(height, width, half)
    return torch.cat([rows, columns], -1).reshape(1, height * width, features)
