#!/usr/bin/env python3
"""Send images to the running server, print what was detected and draw it.

    python scripts/detect.py page.jpg
    python scripts/detect.py --model yolox-nano --out drawn/ *.jpg

Each image is drawn with its boxes to OUT/<name>.jpg. Exit code: 0 if every image was answered.
"""

import argparse
import sys
from pathlib import Path

from models.images import decode
from qualification.client import Client
from qualification.evidence import Seen, parse_response
from qualification.pictures import annotate

MAX_PIXELS = 200_000_000  # of the user's own images; the server has its own limit


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="JPEG or PNG files")
    parser.add_argument("--model", help="a served model; may be left out when there is only one")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=Path("detected"), help="folder for the drawn images"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    client, failed = Client(args.url), 0
    for path in args.images:
        try:
            encoded = path.read_bytes()
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            failed += 1
            continue
        status, body = client.infer(args.model, [encoded])
        if status != 200:
            print(f"{path}: {status or 'no answer'}: {body.decode()}", file=sys.stderr)
            failed += 1
            continue
        (boxes,) = parse_response(body)
        height, width = decode(encoded, MAX_PIXELS).shape[:2]
        seen = Seen.from_wire(path.name, boxes, height, width)
        drawn = args.out / f"{path.stem}.jpg"
        annotate(path, seen, drawn)
        print(f"{path}: {len(boxes)} boxes, drawn to {drawn}")
        for label, _, *corners, score in sorted(boxes, key=lambda box: -box[6]):
            pixels = (
                corners[0] * width,
                corners[1] * height,
                corners[2] * width,
                corners[3] * height,
            )
            print(f"  {score:.2f}  {label:<16} " + " ".join(f"{side:7.1f}" for side in pixels))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
