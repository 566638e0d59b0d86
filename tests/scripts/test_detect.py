"""scripts/detect.py as a user runs it."""

from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.slow


def test_an_image_is_drawn_and_a_missing_one_is_named(
    application, run_script, data: Path, tmp_path: Path
) -> None:
    zebras = data / "coco128" / "images" / "000000000154.jpg"
    absent = tmp_path / "absent.jpg"
    arguments = ("--url", application.url, "--model", "yolox-nano", "--out", tmp_path)
    done = run_script("detect.py", *arguments, zebras, absent)
    assert done.returncode == 1
    assert f"{absent}: No such file" in done.stderr
    assert f"{zebras}: 3 boxes" in done.stdout
    assert done.stdout.count("zebra") == 3
    with Image.open(tmp_path / zebras.name) as drawn, Image.open(zebras) as sent:
        assert drawn.size == sent.size


def test_a_refusal_is_shown(application, run_script, tmp_path: Path) -> None:
    picture = tmp_path / "picture.gif"
    Image.new("RGB", (8, 8)).save(picture)
    done = run_script(
        "detect.py", "--url", application.url, "--model", "yolox-nano", "--out", tmp_path, picture
    )
    assert (done.returncode, "unsupported_image_type" in done.stderr) == (1, True)
