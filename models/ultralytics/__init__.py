"""What the YOLO families that Ultralytics' architecture files describe have in common.

    archive.py   the published .pt file, read without running what is pickled in it
    plan.py      the architecture dict as a list of layers
    blocks.py    the building blocks, heads.py the heads, network.py the network (torch)
    convert.py   weights -> ONNX in a process of its own, export.py that process
    onnx_form.py the ONNX form that Ultralytics publishes, as a bundle's graph
    anchor_free.py the family of YOLOv8 and YOLO11

Only blocks, heads, network and export import torch, and serving imports none of them.
"""
