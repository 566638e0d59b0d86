"""Draws `examples/page.jpg`, the page that the README's first request sends.

It is one of the dataset's pages, so that a reader sees what a layout detector is gated on.
Run from the repository root: `python -m scripts.draw_example`.
"""

from pathlib import Path

from qualification.datasets.pages import draw_page

PAGE = 42  # a Picture, a Table, Section-headers and Text, each found with a score above 0.6


def main() -> None:
    target = Path(__file__).parents[1] / "examples" / "page.jpg"
    target.parent.mkdir(exist_ok=True)
    draw_page(PAGE).image.save(target, quality=90)
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
