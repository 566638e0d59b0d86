"""`say`: a line for the person at the terminal of `serve run`, and for Serve's log.

Serve sends what a replica prints to its log files alone; the process's own standard output is
still forwarded to the terminal.
"""

import logging
import sys

logger = logging.getLogger("ray.serve")


def say(message: str) -> None:
    logger.info(message)
    if sys.__stdout__ is not None:
        # not `print`: Serve replaces it in replicas
        sys.__stdout__.write(f"{message}\n")
        sys.__stdout__.flush()
