"""Label sets that several checkpoints share, by the name a catalogue file gives them."""

# COCO's 80 "thing" classes in ascending category id: the contiguous indices 0..79 that YOLO
# checkpoints use (instances_val2017.json, `categories`).
COCO80 = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog",
    "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella",
    "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange",
    "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant",
    "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone",
    "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors",
    "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip

# Category ids below 91 that COCO's detection data never uses (instances_val2017.json).
_COCO_GAPS = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)


def _sparse() -> tuple[str, ...]:
    names = iter(COCO80)
    return tuple(f"N/A {index}" if index in _COCO_GAPS else next(names) for index in range(91))


# COCO's category ids themselves as indices, 0..90, as DETR and its successors train them. The
# published lists call all gaps "N/A"; here each has a name of its own, for labels are unique.
COCO91 = _sparse()

LABEL_SETS: dict[str, tuple[str, ...]] = {"coco80": COCO80, "coco91": COCO91}

# Other names of COCO's classes in published label lists (Pascal VOC's, in MMDetection's list).
_SYNONYMS = {
    "aeroplane": "airplane",
    "diningtable": "dining table",
    "motorbike": "motorcycle",
    "pottedplant": "potted plant",
    "sofa": "couch",
    "tvmonitor": "tv",
}


def same_label(published: str, catalogued: str) -> bool:
    """Whether a checkpoint's name for a class means the catalogue's label."""
    if published == "N/A":
        return catalogued.startswith("N/A ")
    return _SYNONYMS.get(published, published) == catalogued
