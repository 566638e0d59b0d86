"""`report.html`: a campaign's outcome on one page that needs no network and reads on a phone.

`write` makes it from a run folder, in the campaign and again at any later time.
"""

from qualification.html.page import write

__all__ = ["write"]
