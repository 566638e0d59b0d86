"""A plan as a torch network with published weights in it, for export only.

Loading is strict: a weight that is missing, left over or of another shape means that the network
built here is not the published one. So are a recorded activation, residual or epsilon that differ.
"""

# mypy: allow-subclassing-any, allow-untyped-calls, no-warn-return-any

from collections.abc import Mapping

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from torch import nn  # type: ignore[import-not-found,unused-ignore]

from models.errors import BundleError
from models.ultralytics.archive import Module
from models.ultralytics.blocks import BLOCKS, Conv, Residual
from models.ultralytics.heads import HEADS
from models.ultralytics.plan import Plan

SHOWN = 4  # names that an error lists


class Network(nn.Module):
    """images float32 [1, 3, H, W] RGB 0..1 -> the head's output."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        layers = [
            block
            if layer.repeats == 1
            else nn.Sequential(
                block, *(BLOCKS[layer.kind](*layer.arguments) for _ in range(layer.repeats - 1))
            )
            for layer in plan.layers
            for block in [BLOCKS[layer.kind](*layer.arguments)]
        ]
        self.model = nn.ModuleList([*layers, HEADS[plan.head](plan)])
        self._sources = [layer.sources for layer in plan.layers]
        self._outputs = plan.outputs
        # YOLOv10's one-to-many branches are for training: published, and not used
        last = f"model.{len(layers)}."
        self._unused = (f"{last}cv2.", f"{last}cv3.") if plan.head == "one-to-one" else ()
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: list[torch.Tensor] = []
        for layer, sources in zip(self.model[:-1], self._sources, strict=True):
            made.append(layer(*(made[index] if index >= 0 else images for index in sources)))
        return self.model[-1]([made[index] for index in self._outputs])

    def load(self, state: Mapping[str, np.ndarray], modules: Mapping[str, Module]) -> None:
        """Take the published weights, widened to float32.

        modules: what the checkpoint records of its modules; empty where it records nothing.

        Raises:
            BundleError: they are not this network's.
        """
        own = self.state_dict()
        given = {
            name: value
            for name, value in state.items()
            if not any(name.startswith(prefix) for prefix in self._unused)
        }
        shared = own.keys() & given.keys()
        reshaped = {name for name in shared if tuple(own[name].shape) != given[name].shape}
        problems = [
            f"{len(names)} {what} ({', '.join(sorted(names)[:SHOWN])}"
            f"{', ...' if len(names) > SHOWN else ''})"
            for what, names in (
                ("missing", own.keys() - shared),
                ("unexpected", given.keys() - shared),
                ("of another shape", reshaped),
            )
            if names
        ]
        if problems:
            raise BundleError(
                f"the weights are not those of the architecture they come with: "
                f"{'; '.join(problems)}"
            )
        self.load_state_dict(
            {name: torch.from_numpy(value).to(own[name].dtype) for name, value in given.items()}
        )
        for name, module in self.named_modules():
            self._check(name, module, modules)

    def _check(self, name: str, module: nn.Module, modules: Mapping[str, Module]) -> None:
        """Compare one module with what the checkpoint records of it."""
        recorded = modules.get(name)
        if recorded is None:
            return
        expected: dict[str, object] = {}
        if isinstance(module, Residual):
            expected["add"] = module.add
        if isinstance(module, nn.BatchNorm2d):
            expected["eps"] = module.eps
        for key, value in expected.items():
            if recorded.settings.get(key, value) != value:
                raise BundleError(
                    f"{name} ({recorded.kind}) was published with {key} = "
                    f"{recorded.settings[key]}, the network here has {value}"
                )
        if isinstance(module, Conv):
            act = modules.get(f"{name}.act")
            if act is not None and act.kind != type(module.act).__name__:
                raise BundleError(
                    f"{name} was published with the activation {act.kind}, the network here has "
                    f"{type(module.act).__name__}"
                )

    def fuse(self) -> None:
        """Fold every batch normalisation into its convolution."""
        for module in self.modules():
            if isinstance(module, Conv):
                module.fuse()
