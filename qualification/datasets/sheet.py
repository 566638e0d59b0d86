"""A sheet of paper that blocks of a document are drawn on, each with its known box.

The drawing half of the pages dataset: text, tables and figures, from a random generator alone.
"""

import random
from functools import lru_cache

from PIL import Image, ImageChops, ImageDraw, ImageFont

Box = tuple[float, float, float, float]  # (x_min, y_min, x_max, y_max) in pixels
Colour = tuple[int, int, int]

SIZES = ((850, 1100), (827, 1169), (1000, 1294), (1050, 1485), (1275, 1650), (1100, 850))
PAPERS: tuple[Colour, ...] = ((255, 255, 255), (255, 255, 255), (250, 248, 242), (246, 246, 247))
INKS: tuple[Colour, ...] = ((0, 0, 0), (20, 20, 20), (35, 35, 40))
ACCENTS: tuple[Colour, ...] = ((31, 78, 121), (140, 45, 38), (47, 107, 60), (94, 60, 125))
SKIES: tuple[tuple[Colour, Colour], ...] = (  # from the top to the horizon
    ((52, 96, 160), (226, 222, 205)),
    ((70, 60, 110), (244, 178, 120)),
)
HILLS: tuple[Colour, ...] = ((70, 92, 78), (86, 82, 70), (60, 84, 104))

NOUNS, VERBS, ADJECTIVES, PLACES = (
    words.split()
    for words in (
        "analysis water region model growth market report study engine river energy sample system "
        "country policy method signal surface network season pressure temperature material valley "
        "harvest forest station record budget committee population level supply design measure "
        "result survey effect change industry period council project history",
        "shows follows improves reduces describes supports reaches changes explains covers limits "
        "suggests carries exceeds confirms requires",
        "new large early annual public local recent steady small regional common careful average "
        "main final open strong northern simple direct",
        "in of for with under across near after before between",
    )
)
JOINTS = (", while", " because", ", and", ", although")


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont:
    """The one font inside Pillow: a system's fonts would draw other pixels on every machine."""
    font = ImageFont.load_default(size=size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow was built without FreeType: pages cannot be drawn")
    return font


@lru_cache(maxsize=8192)
def _word(text: str, size: int, bold: bool) -> tuple[Image.Image, int]:
    """A word's mask (mode L) and how far it moves the pen: most of a page is words seen before."""
    stroke = size * 0.025 if bold else 0  # the font has no bold: thicken and space its letters
    advance = round(_font(size).getlength(text) + 2 * stroke * len(text))
    mask = Image.new("L", (advance + size // 4, size * 3 // 2))
    draw, pen = ImageDraw.Draw(mask), stroke
    for run in text if bold else (text,):
        draw.text((pen, 0), run, 255, _font(size), stroke_width=stroke)
        pen += _font(size).getlength(run) + 2 * stroke
    return mask, advance


def _clause(rng: random.Random) -> str:
    tail = ""
    if rng.random() < 0.7:
        tail = f" {rng.choice(PLACES)} the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    subject = f"the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    return f"{subject} {rng.choice(VERBS)} the {rng.choice(NOUNS)}{tail}"


def _sentence(rng: random.Random) -> str:
    second = f"{rng.choice(JOINTS)} {_clause(rng)}" if rng.random() < 0.5 else ""
    return f"{_clause(rng)}{second}.".capitalize()


def heading(rng: random.Random) -> str:
    first, second = rng.sample(NOUNS, 2)
    shapes = (f"{first} and {second}", f"{rng.choice(ADJECTIVES)} {first}", f"{first} {second}")
    return rng.choice(shapes).capitalize()


class Sheet:
    """A page being drawn: a block puts its ink below y, names its box and returns its bottom."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.width, self.height = rng.choice(SIZES)
        self.paper = rng.choice(PAPERS)
        self.ink = rng.choice(INKS)
        self.accent = rng.choice(ACCENTS)
        self.heading_ink = rng.choice((self.ink, self.accent))
        self.body = round(min(self.width, self.height) * rng.choice((0.0165, 0.018, 0.0195)))
        self.lead = round(self.body * rng.choice((1.25, 1.4)))  # from line to line
        self.image = Image.new("RGB", (self.width, self.height), self.paper)
        self.draw = ImageDraw.Draw(self.image)
        self.boxes: list[tuple[str, Box]] = []

    def mark(self, label: str, region: tuple[int, int, int, int]) -> None:
        """Names the ink inside a region that holds nothing else."""
        crop = self.image.crop(region)
        ink = ImageChops.difference(crop, Image.new("RGB", crop.size, self.paper)).getbbox()
        assert ink is not None, f"{label} drew nothing"
        x, y = region[:2]
        box = (float(x + ink[0]), float(y + ink[1]), float(x + ink[2]), float(y + ink[3]))
        self.boxes.append((label, box))

    def number(self, label: str) -> int:
        """The number of the label's next box, from 1."""
        return 1 + sum(name == label for name, _ in self.boxes)

    def words(
        self,
        x: int,
        y: int,
        text: str,
        size: int,
        *,
        bold: bool = False,
        align: float = 0,  # 0: x is the left end, 0.5: the middle, 1: the right end
        ink: Colour | None = None,
        width: int | None = None,  # stretch the spaces to fill it
    ) -> None:
        """One line of text."""
        words = [_word(word, size, bold) for word in text.split(" ")]
        total, gaps = sum(advance for _, advance in words), len(words) - 1
        spaces = round(size * 0.27) * gaps if width is None or not gaps else width - total
        pen = x - int(align * (total + spaces))
        for index, (mask, advance) in enumerate(words):
            shift = spaces * index // gaps if gaps else 0
            self.image.paste(ink or self.ink, (pen + shift, y), mask)
            pen += advance

    def wrap(self, text: str, width: int, size: int) -> list[str]:
        """The text broken into lines that fit the width."""
        lines: list[list[str]] = [[]]
        pen = 0
        for word in text.split(" "):
            advance = _word(word, size, False)[1]
            if lines[-1] and pen + advance > width:
                lines.append([])
                pen = 0
            lines[-1].append(word)
            pen += advance + round(size * 0.27)
        return [" ".join(line) for line in lines]

    def prose(self, width: int, most: int) -> list[str]:
        """Whole sentences, as many as fit in `most` lines, and always one."""
        while len(lines := self.wrap(text := _sentence(self.rng), width, self.body)) > most:
            pass
        while True:
            text = f"{text} {_sentence(self.rng)}"
            longer = self.wrap(text, width, self.body)
            if len(longer) > most:
                return lines
            lines = longer

    def paragraph(self, x: int, y: int, width: int, most: int) -> int:
        lines = self.prose(width, most)
        for row, line in enumerate(lines):
            full = width if row < len(lines) - 1 else None
            self.words(x, y + row * self.lead, line, self.body, width=full)
        bottom = y + len(lines) * self.lead
        self.mark("Text", (x, y, x + width + self.body, bottom))
        return bottom

    def section(self, x: int, y: int, width: int) -> int:
        size = round(self.body * 1.25)
        text = f"{self.number('Section-header')}. {heading(self.rng)}"
        self.words(x, y, text, size, bold=True, ink=self.heading_ink)
        bottom = y + round(size * 1.4)
        self.mark("Section-header", (x, y, x + width + self.body, bottom))
        return bottom

    def bullets(self, x: int, y: int, width: int) -> int:
        indent, dot = self.body * 3 // 2, self.body // 3
        for _ in range(self.rng.randint(2, 3)):
            lines = self.prose(width - indent, 2)
            middle = y + self.body * 3 // 5
            self.draw.ellipse((x, middle - dot // 2, x + dot, middle - dot // 2 + dot), self.ink)
            for row, line in enumerate(lines):
                self.words(x + indent, y + row * self.lead, line, self.body)
            bottom = y + len(lines) * self.lead
            self.mark("List-item", (x, y, x + width + self.body, bottom))
            y = bottom + self.lead // 3
        return bottom

    def caption(self, x: int, y: int, width: int, start: str) -> int:
        size = round(self.body * 0.85)
        lines = self.wrap(f"{start}: {_clause(self.rng).capitalize()}.", width, size)
        for row, line in enumerate(lines):
            self.words(x + width // 2, y + row * self.lead, line, size, align=0.5)
        bottom = y + len(lines) * self.lead
        self.mark("Caption", (x, y, x + width + self.body, bottom))
        return bottom

    def figure(self, x: int, y: int, width: int, height: int) -> int:
        start = f"Figure {self.number('Picture')}"
        self.rng.choice((self.photo, self.bars, self.curves))(x, y, width, height)
        self.mark("Picture", (x, y, x + width, y + height))
        return self.caption(x, y + height + self.body // 2, width, start)

    def photo(self, x: int, y: int, width: int, height: int) -> None:
        """A landscape: a sky with a sun, and ranges of hills that darken towards the eye."""
        rng = self.rng
        top, horizon = (Image.new("RGB", (width, height), colour) for colour in rng.choice(SKIES))
        fade = Image.linear_gradient("L").resize((width, height))
        picture = Image.composite(horizon, top, fade)
        draw = ImageDraw.Draw(picture)
        sun = (rng.randint(width // 5, width * 4 // 5), rng.randint(height // 5, height * 2 // 5))
        draw.circle(sun, height // 12, (255, 244, 214))
        red, green, blue = rng.choice(HILLS)
        for layer in range(4):
            base, swing, steps = height * (5 + layer) // 10, height // 9, rng.randint(7, 14)
            ridge = [
                (width * step // steps, base + rng.randint(-swing, swing))
                for step in range(steps + 1)
            ]
            near = 5 - layer
            shade = (red * near // 4, green * near // 4, blue * near // 4)
            draw.polygon([(0, height), *ridge, (width, height)], shade)
        self.image.paste(picture, (x, y))

    def axes(
        self, x: int, y: int, width: int, height: int, ticks: int
    ) -> tuple[int, int, int, int]:
        """A chart's frame, grid and tick labels; returns the plot's left, top, width, height."""
        size = round(self.body * 0.8)
        left, top, right, bottom = x + size * 3, y + size // 2, x + width - 1, y + height - size * 2
        for tick in range(5):
            level = bottom - (bottom - top) * tick // 4
            self.draw.line((left, level, right, level), (205, 205, 205))
            self.words(left - size // 2, level - size * 2 // 3, str(tick * 25), size, align=1)
        for tick in range(ticks):
            middle = left + (right - left) * (2 * tick + 1) // (2 * ticks)
            self.words(middle, bottom + size // 3, str(2015 + tick), size, align=0.5)
        self.draw.rectangle((left, top, right, bottom), outline=self.ink)
        return left, top, right - left, bottom - top

    def bars(self, x: int, y: int, width: int, height: int) -> None:
        count = self.rng.randint(4, 6)
        left, top, wide, high = self.axes(x, y, width, height, count)
        slot = wide // count
        red, green, blue = self.accent
        pale = ((red + 255) // 2, (green + 255) // 2, (blue + 255) // 2)
        for index in range(count):
            for half, colour in enumerate((self.accent, pale)):
                start = left + index * slot + slot // 6 + half * slot // 3
                level = top + high * self.rng.randint(5, 85) // 100
                self.draw.rectangle((start, level, start + slot // 3 - 1, top + high - 1), colour)

    def curves(self, x: int, y: int, width: int, height: int) -> None:
        left, top, wide, high = self.axes(x, y, width, height, 5)
        thick = max(2, self.body // 7)
        for colour in self.rng.sample(ACCENTS, 3):
            level, points = self.rng.randint(20, 80), []
            for index in range(16):
                across = left + 2 * thick + (wide - 4 * thick) * index // 15
                points.append((across, top + high * level // 100))
                level = min(94, max(6, level + self.rng.randint(-15, 15)))
            self.draw.line(points, colour, thick, joint="curve")

    def table(self, x: int, y: int, width: int, rows: int) -> int:
        rng, size = self.rng, self.body
        y = self.caption(x, y, width, f"Table {self.number('Table')}") + size // 3
        columns = rng.randint(3, 5 if width > size * 34 else 4)
        first = width * 3 // (columns + 2)  # the first column is three parts wide, the others one
        rights = [
            x + first + (width - first) * column // (columns - 1) for column in range(columns)
        ]
        pitch, right = round(self.lead * 1.15), x + width - 1
        bottom = y + (rows + 1) * pitch
        grid = rng.random() < 0.4
        if rng.random() < 0.4:
            self.draw.rectangle((x, y, right, y + pitch), (221, 226, 233))
        for row in range(rows + 1):
            line = y + row * pitch + (pitch - size) // 2 - size // 10
            name = rng.choice(NOUNS).capitalize() if row else "Item"
            self.words(x + size // 2, line, name, size, bold=row == 0)
            for column, edge in enumerate(rights[1:]):
                cell = f"{rng.randint(10, 4000) / 10:.1f}" if row else str(2019 + column)
                self.words(edge - size // 2, line, cell, size, bold=row == 0, align=1)
        for row in range(rows + 2):
            if grid or row in (0, 1, rows + 1):
                level = y + row * pitch
                self.draw.line((x, level, right, level), self.ink, 1 if grid else 2)
        for edge in (x, *rights[:-1], right) if grid else ():
            self.draw.line((edge, y, edge, bottom), self.ink)
        self.mark("Table", (x, y - 1, x + width, bottom + 2))
        return bottom + 2

    def column(self, x: int, y: int, width: int, bottom: int, floats: list[str]) -> None:
        """Fills a column with sections: a heading, paragraphs, and the floats between them."""
        rng, lead, gap = self.rng, self.lead, self.lead * 4 // 5
        shortest, longest = (4, 7) if width > self.body * 45 else (7, 13)  # paragraphs, in lines
        waiting, headed = list(floats), False
        while (bottom - y) // lead >= (3 if headed else 6):
            if not headed:
                y = self.section(x, y, width) + gap // 3
            most = min(rng.randint(shortest, longest), (bottom - y) // lead)
            y = self.paragraph(x, y, width, most) + gap
            headed = rng.random() < 0.6  # the next paragraph belongs to the same heading
            y += 0 if headed else gap // 2
            room = bottom - y
            height = round(min(width * rng.uniform(0.5, 0.75), self.height * 0.3))
            rows = rng.randint(4, 9)
            if waiting[:1] == ["figure"] and room > height + 4 * lead:
                y = self.figure(x, y + gap // 2, width, height) + gap * 3 // 2
            elif waiting[:1] == ["table"] and room > (rows + 5) * lead * 1.15:
                y = self.table(x, y + gap // 2, width, rows) + gap * 3 // 2
            elif waiting[:1] == ["list"] and room > 9 * lead:
                y = self.bullets(x, y, width) + gap
            else:
                continue
            waiting.pop(0)
