"""The tables, as SQLAlchemy 2 typed models. Every table is append-only (see ``_schema``).

Identity is content: operators, workloads, environments and genomes are shared between campaigns
and found by fingerprint. The integer ids are internal and never leave this folder.

Campaign, Round, Candidate, Evaluation, Contest, Conclusion and Event rows carry a *position*: one
sequence from 1 for each campaign over all these tables, which is the order of appending.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import Text

# SQLite's rowid alias must be declared INTEGER; elsewhere 64 bits have to be asked for.
_WIDE = BigInteger().with_variant(Integer, "sqlite")


class Blob(LargeBinary):
    """Bytes as the driver has them: the usual type copies every value on its way in and out."""

    def bind_processor(self, dialect: Dialect) -> None:
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        return None


# Texts are ordered by their bytes, as SQLite does: an order must not depend on a server's locale.
_WORDS = Text().with_variant(Text(collation="C"), "postgresql")


class Base(DeclarativeBase):
    """Base of every table; its metadata is the schema."""

    type_annotation_map = {str: _WORDS, float: Float(53), bytes: Blob, int: _WIDE}  # noqa: RUF012


class OperatorRow(Base):
    """An operator. ``fingerprint`` is over the job, ``digest`` over the whole text.

    Two definitions of one job that differ in their descriptions are two rows with one
    fingerprint, so that a campaign gives back exactly what it was begun with.
    """

    __tablename__ = "operator"

    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    text: Mapped[str]


class WorkloadRow(Base):
    """A workload of an operator; ``fingerprint`` and ``digest`` as for the operator."""

    __tablename__ = "workload"

    id: Mapped[int] = mapped_column(primary_key=True)
    operator: Mapped[str]
    fingerprint: Mapped[str]
    digest: Mapped[str] = mapped_column(unique=True)
    text: Mapped[str]


class EnvironmentRow(Base):
    """The identity of a place where measurements are made; observations as first seen."""

    __tablename__ = "environment"

    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(unique=True)
    identity: Mapped[str]
    observations: Mapped[str]


class GenomeRow(Base):
    """A genome as its route and typed canonical text."""

    __tablename__ = "genome"

    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(unique=True)
    route: Mapped[str]
    canonical: Mapped[str]


class CampaignRecord(Base):
    """What a campaign was begun with. Its observations are its own, its environment is shared."""

    __tablename__ = "campaign"

    id: Mapped[int] = mapped_column(primary_key=True)
    created_unix_s: Mapped[float]
    target: Mapped[str]
    device: Mapped[str]
    seed: Mapped[str]  # decimal: a seed may be wider than 64 bits
    settings: Mapped[str]
    operator_id: Mapped[int] = mapped_column(ForeignKey("operator.id"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    observations: Mapped[str]


class CampaignWorkload(Base):
    """Which workloads a campaign's problem has, in order."""

    __tablename__ = "campaign_workload"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    place: Mapped[int]
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id"))

    __table_args__ = (UniqueConstraint("campaign_id", "place"),)


class RoundRow(Base):
    """What one round asked."""

    __tablename__ = "round"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    number: Mapped[int]
    counts: Mapped[str]

    __table_args__ = (
        UniqueConstraint("campaign_id", "number"),
        UniqueConstraint("campaign_id", "position"),
    )


class CandidateRow(Base):
    """One genome on one workload, handed out. ``parents``: fingerprints parted by spaces."""

    __tablename__ = "candidate"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    number: Mapped[int]
    round: Mapped[int]
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id"))
    genome_id: Mapped[int] = mapped_column(ForeignKey("genome.id"))
    island: Mapped[str]
    mutation: Mapped[str]
    parents: Mapped[str | None]

    __table_args__ = (
        UniqueConstraint("campaign_id", "number"),
        UniqueConstraint("campaign_id", "position"),
    )


class EvaluationRow(Base):
    """A candidate's outcome and verdict; at most one each.

    ``samples`` holds little-endian float64, so that a statistic computed from the store equals
    the one computed when it was measured, to the last bit. Without a measurement the columns
    from ``objective`` to ``samples`` are null.
    """

    __tablename__ = "evaluation"

    candidate_id: Mapped[int] = mapped_column(ForeignKey("candidate.id"), primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    status: Mapped[str]
    verdict: Mapped[str]
    cost_s: Mapped[float]
    objective: Mapped[float | None]
    unit: Mapped[str | None]
    censored: Mapped[int | None]
    cache: Mapped[str | None]
    launches: Mapped[int | None]
    samples: Mapped[bytes | None]
    failure: Mapped[str | None]
    message: Mapped[str | None]
    properties: Mapped[str | None]

    __table_args__ = (UniqueConstraint("campaign_id", "position"),)


class ContestRow(Base):
    """A confirmation, attribution, audit or verification with its raw samples, row by row."""

    __tablename__ = "contest"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    purpose: Mapped[str]
    workload: Mapped[str]
    subject: Mapped[str]
    against: Mapped[str]
    upheld: Mapped[int]
    speedup: Mapped[str | None]
    names: Mapped[str]
    samples: Mapped[bytes]
    failures: Mapped[str]
    unit: Mapped[str]

    __table_args__ = (UniqueConstraint("campaign_id", "position"),)


class ConclusionRow(Base):
    """A conclusion as text, with the columns that it is looked up by."""

    __tablename__ = "conclusion"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    operator: Mapped[str]
    fingerprint: Mapped[str]
    text: Mapped[str]

    __table_args__ = (UniqueConstraint("campaign_id", "position"),)


class EventRow(Base):
    """Something that happened to the campaign."""

    __tablename__ = "event"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaign.id"))
    position: Mapped[int]
    kind: Mapped[str]
    unix_s: Mapped[float]
    payload: Mapped[str]

    __table_args__ = (UniqueConstraint("campaign_id", "position"),)


# ``show FINGERPRINT`` and the evidence of a genome look from the genome to its candidates.
Index("candidate_genome", CandidateRow.genome_id)

POSITIONED = (RoundRow, CandidateRow, EvaluationRow, ContestRow, ConclusionRow, EventRow)
"""The tables that share one sequence of positions for each campaign."""
