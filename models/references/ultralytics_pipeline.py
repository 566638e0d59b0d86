"""The published pipeline of an Ultralytics checkpoint: its package's letterbox, model and NMS.

Runs in worker.py, which needs torch and ultralytics. Only reading the checkpoint is shared with
the served path (nothing pickled may run here either).
"""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-call,no-any-return"

import importlib.metadata
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from models.opencv import read_bgr
from models.ultralytics.archive import read_archive
from models.ultralytics.weights import read_safetensors

NMS_IOU, LIMIT = 0.7, 300  # defaults of ultralytics' `predict`: iou, max_det
Detect = Callable[[bytes, float], dict[str, Any]]


def load(asked: Mapping[str, Any]) -> tuple[list[str] | None, Detect]:
    """asked: the file `checkpoint`, the `canvas` as height and width, and for safetensors, which
    carry none, the `architecture` (else null)."""
    height, width = asked["canvas"]
    path, architecture = Path(asked["checkpoint"]), asked["architecture"]
    if architecture is not None:
        return None, pipeline(architecture, read_safetensors(path), (height, width))
    archive = read_archive(path)
    detect = pipeline(archive.architecture, archive.state, (height, width))
    return list(archive.names), detect


def pipeline(
    architecture: Mapping[str, Any], state: Mapping[str, np.ndarray], canvas: tuple[int, int]
) -> Detect:
    """The detector: encoded image and threshold -> boxes, scores, class_ids, height, width."""
    without_torchvision()
    import torch
    from ultralytics.data.augment import LetterBox
    from ultralytics.utils.nms import non_max_suppression
    from ultralytics.utils.ops import scale_boxes

    torch.set_num_threads(os.cpu_count() or 1)  # Ray tells what its actors start to use one
    predict = network(architecture, state)
    letterbox = LetterBox(new_shape=canvas, auto=False, stride=32)

    def detect(image: bytes, threshold: float) -> dict[str, Any]:
        pixels = read_bgr(image)
        size = pixels.shape[:2]
        painted = np.ascontiguousarray(letterbox(image=pixels)[..., ::-1].transpose(2, 0, 1))
        with torch.no_grad():
            output = predict(torch.from_numpy(painted)[None].float() / 255)
        # The package keeps scores above, not equal to, its threshold. In double precision, because
        # it tells classes apart by adding 7680 pixels a class, which costs float32 0.06 pixel.
        (rows,) = non_max_suppression(
            output.double(),
            float(np.nextafter(threshold, 0)),
            NMS_IOU,
            max_det=LIMIT,
            max_time_img=60,
        )
        boxes = scale_boxes(canvas, rows[:, :4], size)
        return {
            "boxes": boxes.tolist(),
            "scores": rows[:, 4].tolist(),
            "class_ids": rows[:, 5].int().tolist(),
            "height": size[0],
            "width": size[1],
        }

    return detect


def network(architecture: Mapping[str, Any], state: Mapping[str, np.ndarray]) -> Callable[..., Any]:
    """The package's own model with the weights in it: images -> what its NMS takes."""
    import torch
    from ultralytics.nn.tasks import DetectionModel

    built = deepcopy(dict(architecture))
    anchors = built.get("anchors")
    if anchors is not None:  # YOLOv5: the package has its blocks, and no longer its head
        built["head"][-1][-1] = ["nc"]
        del built["anchors"]
    model = DetectionModel(built, ch=3, nc=built["nc"], verbose=False).eval()
    head = model.model[-1]
    own = {name: torch.from_numpy(value) for name, value in state.items()}
    if anchors is None:
        model.load_state_dict(own, strict=True)
        head.end2end = hasattr(head, "one2one_cv2")
        return lambda images: model.float()(images)[0]
    prefix = f"model.{len(model.model) - 1}."
    model.load_state_dict(
        {name: value for name, value in own.items() if not name.startswith(prefix)}
        | {name: value for name, value in model.state_dict().items() if name.startswith(prefix)},
        strict=True,
    )
    weights = {name: value.float() for name, value in own.items() if name.startswith(prefix)}
    return _YOLOv5(model.float(), weights, prefix, anchors)


class _YOLOv5:
    """YOLOv5 6.0's head on the package's network, written from its published formula, one anchor
    and one cell at a time in double precision."""

    def __init__(self, model: Any, weights: Mapping[str, Any], prefix: str, anchors: Any) -> None:
        self._model, self._weights, self._prefix, self._anchors = model, weights, prefix, anchors
        model.model[-1].register_forward_pre_hook(self._keep)
        self._maps: list[Any] = []

    def _keep(self, _module: Any, inputs: Any) -> None:
        self._maps = [each.clone() for each in inputs[0]]

    def __call__(self, images: Any) -> Any:
        import torch

        self._model(images)
        columns: list[Any] = []
        for level, features in enumerate(self._maps):
            kernel, bias = (
                self._weights[f"{self._prefix}m.{level}.{part}"] for part in ("weight", "bias")
            )
            raw = torch.einsum("oc,chw->ohw", kernel[:, :, 0, 0], features[0])
            raw = (raw + bias[:, None, None]).double()
            stride = images.shape[2] / raw.shape[1]
            pairs = np.reshape(self._anchors[level], (-1, 2))
            for index, (anchor_width, anchor_height) in enumerate(pairs):
                part = len(raw) // len(pairs)
                values = 1 / (1 + torch.exp(-raw[index * part : (index + 1) * part]))
                rows, cells = values.shape[1:]
                x = (2 * values[0] - 0.5 + torch.arange(cells)[None, :]) * stride
                y = (2 * values[1] - 0.5 + torch.arange(rows)[:, None]) * stride
                w = (2 * values[2]) ** 2 * float(anchor_width)
                h = (2 * values[3]) ** 2 * float(anchor_height)
                scores = values[4] * values[5:]
                columns.append(torch.cat((torch.stack((x, y, w, h)), scores)).flatten(1))
        return torch.cat(columns, 1)[None].float()


def without_torchvision() -> None:
    """ultralytics reads torchvision's version when it is imported, and here needs no more of it."""
    os.environ["YOLO_AUTOINSTALL"] = "false"
    published = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return published(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name == "torchvision":
                return "0.28.0"
            raise

    importlib.metadata.version = version
