"""A campaign in other formats: ``export``, the table ``EXPORTERS``, its keys ``FORMATS``."""

from typing import TYPE_CHECKING

from kernelarc.genomes import on_first_use

if TYPE_CHECKING:
    from kernelarc.storage.exports._export import EXPORTERS, Exporter, export
    from kernelarc.storage.exports._formats import FORMATS
    from kernelarc.storage.exports._naming import paths_for
    from kernelarc.storage.exports._placing import FileWriter
    from kernelarc.storage.exports._subject import GenomeRow, Subject

__all__ = [
    "EXPORTERS",
    "FORMATS",
    "Exporter",
    "FileWriter",
    "GenomeRow",
    "Subject",
    "export",
    "paths_for",
]

# Imported on first use: the command line's help must not wait for everything.
_HOMES = {
    "_export": ("EXPORTERS", "Exporter", "export"),
    "_formats": ("FORMATS",),
    "_naming": ("paths_for",),
    "_placing": ("FileWriter",),
    "_subject": ("GenomeRow", "Subject"),
}

__getattr__ = on_first_use(__name__, _HOMES)
