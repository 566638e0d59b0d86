"""References: what judges a bundle, and no part of what makes or serves one.

    environment.py  which Python runs them
    process.py      a reference in a process of that Python; worker.py is that process
    published.py    the two published implementations as references
    transformers_pipeline.py, ultralytics_pipeline.py  those implementations, in the worker

Nothing here decides what a bundle holds, so `family_sources` leaves it out.
"""
