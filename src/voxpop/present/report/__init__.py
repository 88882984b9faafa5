"""The report: one HTML file to look at, search and pass on, without any network."""

from voxpop.present.report.page import write_report

__all__ = ["write_report"]
