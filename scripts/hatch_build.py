"""Build hook: installs `detserve.pth`, which puts Ray Serve's fast settings in force.

They are environment variables that Ray reads when `serve` or `ray` begins, before any code of an
application runs; a `.pth` file is the one place from which an installed project can set them.
docs/decisions/serve-settings.md has the reasons.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ServeSettingsHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        kind = "force_include_editable" if version == "editable" else "force_include"
        build_data[kind][f"{self.root}/deployments/detserve.pth"] = "detserve.pth"
