"""The HTML report, and the figures behind `Estimate.plot`.

Figures are drawn by matplotlib and put into the page as SVG: small, sharp in print, readable without
the script, and, unlike a plotting library that runs in the page, possible under a content security
policy that allows one script and one style sheet, both by their hash.
"""

from aggmc_beam.report.page import render, write_report

__all__ = ["render", "write_report"]
