"""Which Python runs the published implementations, and what to say where it cannot.

One place, because the choice decides what a bundle is compared with: `make reference-env` makes an
environment of pinned versions that serving does not share.
"""

import os
import sys
from pathlib import Path

from models.errors import BundleError


def reference_python() -> Path:
    """DETSERVE_REFERENCE_PYTHON where it is set, else the environment that `make reference-env`
    made beside this checkout, else this Python."""
    if configured := os.environ.get("DETSERVE_REFERENCE_PYTHON"):
        return Path(configured).expanduser()
    beside_checkout = Path(__file__).resolve().parents[2] / ".venv-reference" / "bin" / "python"
    return beside_checkout if beside_checkout.exists() else Path(sys.executable)


def cannot_run(python: Path, reason: str) -> BundleError:
    """The one sentence for a Python that lacks what a reference needs."""
    return BundleError(
        f"the reference cannot run in {python}: {reason}; `make reference-env` makes an "
        f"environment that can, and DETSERVE_REFERENCE_PYTHON may name another one"
    )
