"""A campaign in other formats: ``export``, and the table of formats, ``EXPORTERS``."""

from kernelarc.storage.exports._export import EXPORTERS, Exporter, export
from kernelarc.storage.exports._naming import paths_for
from kernelarc.storage.exports._placing import FileWriter
from kernelarc.storage.exports._subject import GenomeRow, Subject

__all__ = ["EXPORTERS", "Exporter", "FileWriter", "GenomeRow", "Subject", "export", "paths_for"]
