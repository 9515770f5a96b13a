"""Finals: the best of a workload, timed apart so far, are timed side by side.

A single evaluation is off by a per cent or two, and a long kernel runs slower in a long contest,
where the device is hot, than in a short evaluation. So the best of a workload is not the one
with the lowest objective: all that come near it meet in one contest. Its winner is nominated,
which proves nothing yet: it is evaluated once more, and that claim is confirmed like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelarc.bench import Session
from kernelarc.engine._arena import Arena
from kernelarc.engine._compare import column_speedup
from kernelarc.engine._ledger import fingerprint
from kernelarc.engine._state import CampaignState
from kernelarc.genomes import Contest, Estimate, Genome
from kernelarc.storage import ContestRecord, Entry

# Who may take part: not slower than the best by more than this share of its time.
_REACH = 0.04
# The heat is short; who is not surely slower there meets again in the final.
_HEAT_ROUNDS, _MOST_IN_FINAL = 8, 6
_HOPE = 0.997
# Evaluations of a workload before its first final; every next one waits for twice as many.
_FIRST = 64


class Finals:
    """Holds finals where they are due. Reads the state; what it finds goes through the log."""

    def __init__(self, session: Session, state: CampaignState, *, margin: float, rounds: int):
        """Make it.

        Args:
            session: Its ``finalists`` says how many may meet; below 2 there are no finals.
            state: Read, never changed.
            margin: The winner must look faster by more than this.
            rounds: Of a final.
        """
        self._session = session
        self._state = state
        self._margin = margin
        self._rounds = rounds

    def units(self, *, closing: bool = False) -> Iterator[list[Entry]]:
        """Yield the records of one final after another.

        Args:
            closing: Hold one of every workload where anybody can take part.
        """
        if self._session.finalists < 2:
            return
        for arena in self._state.arenas.values():
            if closing or arena.evaluated >= max(2 * arena.ledger.final_at, _FIRST):
                unit = self._held(arena)
                if unit:
                    yield unit

    def _contenders(self, arena: Arena) -> list[Genome]:
        """Return the best that never took part, the best first."""
        best = arena.ledger.incumbent
        if best is None:
            return []
        out = {fingerprint(best), *arena.ledger.beaten}
        limit = arena.ledger.bar(best) * (1 + _REACH)
        found: dict[str, Genome] = {}
        for judged in arena.view.best(8 * self._session.finalists):
            measured, name = judged.evaluation.measurement, fingerprint(judged)
            if measured is None or measured.objective > limit or len(found) + 1 >= self._most:
                break
            if name not in out and not measured.censored:
                found[name] = judged.evaluation.candidate.genome
        return list(found.values())

    @property
    def _most(self) -> int:
        return self._session.finalists

    def _held(self, arena: Arena) -> list[Entry]:
        contenders = self._contenders(arena)
        best = arena.ledger.incumbent
        if best is None or not contenders:
            return []
        holder = best.evaluation.candidate.genome
        heat = self._session.contest(arena.workload, [holder, *contenders], rounds=_HEAT_ROUNDS)
        ranked = _ranked(heat, holder, contenders)
        records: list[Entry] = [self._record("heat", arena, heat, holder, ranked)]
        through = [genome for speedup, genome in ranked if speedup.value > _HOPE]
        if through:
            through = through[:_MOST_IN_FINAL]
            final = self._session.contest(arena.workload, [holder, *through], rounds=self._rounds)
            ranked = _ranked(final, holder, through)
            records.append(self._record("final", arena, final, holder, ranked))
        return records

    def _record(
        self,
        purpose: str,
        arena: Arena,
        contest: Contest,
        holder: Genome,
        ranked: list[tuple[Estimate, Genome]],
    ) -> ContestRecord:
        speedup, winner = ranked[0] if ranked else (None, holder)
        return ContestRecord(
            purpose=purpose,
            workload=arena.key,
            subject=winner.fingerprint,
            against=holder.fingerprint,
            contest=contest,
            speedup=speedup,
            upheld=speedup is not None and speedup.value > 1 + self._margin and speedup.low > 1,
        )


def _ranked(
    contest: Contest, holder: Genome, contenders: list[Genome]
) -> list[tuple[Estimate, Genome]]:
    """Return those that did not fail, the fastest beside the holder first."""
    found = [
        (speedup, genome)
        for genome in contenders
        if (speedup := column_speedup(contest, genome.fingerprint, holder.fingerprint, claims=1))
    ]
    return sorted(found, key=lambda pair: (-pair[0].value, pair[1].fingerprint))
