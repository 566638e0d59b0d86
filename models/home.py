"""Where Detserve keeps what it fetched and built, and where it looks for local data.

Two environment variables, read here and nowhere else:

- `DETSERVE_HOME`: checkpoints, bundles, datasets, request records and qualification records.
  Default: `detserve` under the user's cache directory (`~/.cache/detserve` on Linux).
- `DETSERVE_DATA`: a folder with local checkpoints and datasets that are not fetched. Default:
  `../shared/data` beside the checkout.
"""

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """The cache folder, absolute; not created here."""
    configured = os.environ.get("DETSERVE_HOME")
    return Path(configured or platformdirs.user_cache_dir("detserve")).expanduser().absolute()


def data() -> Path:
    """The local data folder, absolute; it need not exist."""
    configured = os.environ.get("DETSERVE_DATA")
    beside_checkout = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(configured or beside_checkout).expanduser().absolute()
