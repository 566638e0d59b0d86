"""Draws `examples/page.jpg`, the page that the README's first request sends.

It is drawn as the dataset's pages are: a reader sees what a layout detector is gated on.
Run from the repository root: `python -m scripts.draw_example`.
"""

from pathlib import Path

from qualification.datasets.pages import draw_page

# Past the hundred of the dataset: a Picture, a Table, a list, captions, headings and text, each
# found by YOLOv8n trained on DocLayNet with a score above 0.7.
PAGE = 886


def main() -> None:
    target = Path(__file__).parents[1] / "examples" / "page.jpg"
    target.parent.mkdir(exist_ok=True)
    draw_page(PAGE).image.save(target, quality=90)
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
