"""What every store must do, whichever the database: one class, run over each backend.

A backend's test module subclasses ``StoreConformance`` and gives a ``where`` fixture: a path or
URL at which there is no store yet.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit import store_strategies as records
from tests.unit.store_records import (
    ELSEWHERE,
    HERE,
    LARGE,
    OPERATOR,
    PROBLEM,
    SMALL,
    SPEC,
    asked_and_told,
    candidate,
    failed,
    genome,
    identical,
    measured,
    same,
    telling_entries,
    trial,
    win,
)

from kernelarc.genomes import (
    Axis,
    Candidate,
    Conclusion,
    ConclusionKind,
    Environment,
    Genome,
    InputError,
    Judged,
    KernelarcError,
    Operator,
    Problem,
    Status,
    Verdict,
    Workload,
)
from kernelarc.storage import (
    Best,
    CampaignSpec,
    ContestRecord,
    Entry,
    Event,
    Round,
    StoreReader,
    StoreWriter,
    open_reader,
    open_writer,
)

quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        # One conformance class is run over every backend: that is several executors on purpose.
        HealthCheck.differing_executors,
    ],
)


def entries_of(store: StoreReader, campaign: int, *, after: int = 0) -> list[Entry]:
    """Return a campaign's log without positions."""
    return [entry for _, entry in store.log(campaign, after=after)]


class StoreConformance:
    """Subclass it and give the fixture ``where``."""

    @pytest.fixture
    def writer(self, where: str) -> Iterator[StoreWriter]:
        with open_writer(where, create=True) as store:
            yield store

    @pytest.fixture
    def campaign(self, writer: StoreWriter) -> int:
        return writer.begin(SPEC, HERE)

    # Campaigns

    def test_a_campaign_comes_back_as_it_was_begun(self, writer: StoreWriter) -> None:
        before = time.time()
        first = writer.begin(SPEC, HERE)
        row = writer.campaign(first)
        assert first == 1
        assert row.spec == SPEC
        assert row.environment == HERE
        assert before <= row.created_unix_s <= time.time()
        assert list(row.spec.problem.operator.axes) == list(OPERATOR.axes)

    def test_the_newest_campaign_is_the_default(self, writer: StoreWriter) -> None:
        ids = [writer.begin(SPEC, HERE), writer.begin(SPEC, ELSEWHERE)]
        assert ids == [1, 2]
        assert writer.campaign().id == 2
        assert [row.id for row in writer.campaigns()] == ids
        assert writer.campaign(1).environment == HERE

    def test_an_unknown_campaign_names_those_there_are(self, writer: StoreWriter) -> None:
        with pytest.raises(InputError, match="holds no campaign"):
            writer.campaign()
        writer.begin(SPEC, HERE)
        writer.begin(SPEC, HERE)
        with pytest.raises(InputError, match=r"no campaign 7 \(known: 1 to 2\)"):
            writer.campaign(7)
        with pytest.raises(InputError, match="no campaign 7"):
            writer.append(7, [Event(kind="lost")])

    def test_what_is_shared_is_stored_once(self, writer: StoreWriter) -> None:
        for _ in range(3):
            writer.begin(SPEC, HERE)
            writer.environment(HERE)
        assert writer.operators() == [OPERATOR]
        assert sorted(w.label for w in writer.workloads(OPERATOR.fingerprint)) == sorted(
            [SMALL.label, LARGE.label]
        )
        assert writer.workloads("0" * 24) == []

    def test_another_wording_of_one_operator_comes_back_as_worded(
        self, writer: StoreWriter
    ) -> None:
        reworded = Operator(
            name="gemm",
            axes=OPERATOR.axes,
            inputs=OPERATOR.inputs,
            outputs=OPERATOR.outputs,
            reference=OPERATOR.reference,
            description="the same job in other words",
        )
        assert reworded.fingerprint == OPERATOR.fingerprint
        spec = CampaignSpec(
            target="g",
            device="cpu",
            seed=0,
            problem=Problem(operator=reworded, workloads=(LARGE,)),
            settings={},
        )
        writer.begin(SPEC, HERE)
        writer.begin(spec, HERE)
        assert writer.campaign(1).spec == SPEC
        assert writer.campaign(2).spec == spec
        assert writer.operators() == [reworded]

    def test_settings_that_are_no_json_are_refused(self, writer: StoreWriter) -> None:
        spec = CampaignSpec(
            target="g", device="cpu", seed=0, problem=PROBLEM, settings={"x": object()}
        )
        with pytest.raises(InputError, match="settings cannot be stored"):
            writer.begin(spec, HERE)
        assert writer.campaigns() == []

    # The log

    def test_the_log_gives_back_every_entry_in_order(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        entries = telling_entries()
        assert writer.append(campaign, entries) == len(entries)
        log = list(writer.log(campaign))
        assert [position for position, _ in log] == list(range(1, len(entries) + 1))
        assert identical([entry for _, entry in log], entries)

    def test_positions_count_for_each_campaign_from_one(self, writer: StoreWriter) -> None:
        first, second = writer.begin(SPEC, HERE), writer.begin(SPEC, HERE)
        assert writer.append(first, asked_and_told(3)) == 6
        assert writer.append(second, asked_and_told(2)) == 4
        assert writer.append(first, [Event(kind="more")]) == 7
        assert len(entries_of(writer, first)) == 7
        assert len(entries_of(writer, second)) == 4

    def test_appending_nothing_changes_nothing(self, writer: StoreWriter, campaign: int) -> None:
        assert writer.append(campaign, []) == 0
        assert writer.append(campaign, asked_and_told(1)) == 2
        assert writer.append(campaign, []) == 2

    def test_a_log_read_from_anywhere_is_the_rest_of_it(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        entries = [*telling_entries(), *asked_and_told(5, start=2)]
        writer.append(campaign, entries)
        for after in range(len(entries) + 1):
            assert identical(entries_of(writer, campaign, after=after), entries[after:])
        assert list(writer.log(campaign, after=99)) == []
        assert list(writer.log(99)) == []

    def test_a_log_longer_than_a_page_keeps_its_order(
        self, writer: StoreWriter, campaign: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kernelarc.storage._log.PAGE", 7)
        monkeypatch.setattr("kernelarc.storage._knowledge.PAGE", 7)
        asked = [candidate(number) for number in range(40)]
        entries: list[Entry] = [*asked, *(measured(c, 1.0 + c.number) for c in reversed(asked))]
        writer.append(campaign, entries)
        assert entries_of(writer, campaign) == entries
        assert list(writer.evaluations(campaign)) == entries[:39:-1]
        known = list(writer.known(HERE.fingerprint, LARGE.fingerprint))
        assert [k.genome for k in known] == [c.genome for c in asked]

    def test_a_log_half_read_keeps_nobody_waiting(
        self, where: str, writer: StoreWriter, campaign: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kernelarc.storage._log.PAGE", 3)
        writer.append(campaign, asked_and_told(10))
        with open_reader(where) as reader:
            log = reader.log(campaign)
            first = next(log)
            assert writer.append(campaign, asked_and_told(10, start=10)) == 40
            assert [first[0], *(position for position, _ in log)] == list(range(1, 21))

    def test_each_kind_can_be_read_alone(self, writer: StoreWriter, campaign: int) -> None:
        entries = telling_entries()
        writer.append(campaign, entries)

        def of(kind: type) -> list[Entry]:
            return [entry for entry in entries if type(entry) is kind]

        assert list(writer.events(campaign)) == of(Event)
        assert list(writer.rounds(campaign)) == of(Round)
        assert list(writer.contests(campaign)) == of(ContestRecord)
        assert list(writer.contests(campaign, purpose="audit")) == []
        assert list(writer.evaluations(campaign)) == of(Judged)
        assert [c for _, c in writer.conclusions()] == of(Conclusion)

    def test_conclusions_are_found_by_campaign_and_operator(self, writer: StoreWriter) -> None:
        first, second = writer.begin(SPEC, HERE), writer.begin(SPEC, HERE)
        taken_back = Conclusion(
            kind=ConclusionKind.RETRACTION,
            operator="f" * 24,
            workload=LARGE.fingerprint,
            route="cpu",
            island="memory",
            why="it was noise",
            retracts=win(1).fingerprint,
            evidence=(3,),
        )
        writer.append(first, [win(1)])
        writer.append(second, [taken_back, win(2)])
        assert writer.conclusions() == [(first, win(1)), (second, taken_back), (second, win(2))]
        assert writer.conclusions(campaign=second) == [(second, taken_back), (second, win(2))]
        assert writer.conclusions(operator="f" * 24) == [(second, taken_back)]
        assert writer.conclusions(campaign=first, operator="f" * 24) == []

    def test_evaluations_come_in_ask_order_by_workload_and_newest(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        asked = [candidate(i, workload=SMALL if i % 3 == 0 else LARGE) for i in range(9)]
        told = {c.number: measured(c, 5.0) for c in asked}
        writer.append(campaign, [*asked, *(told[n] for n in (4, 0, 3, 8, 1, 2))])
        everything = [told[n] for n in (0, 1, 2, 3, 4, 8)]
        assert list(writer.evaluations(campaign)) == everything
        assert list(writer.evaluations(campaign, newest=2)) == everything[-2:]
        assert list(writer.evaluations(campaign, newest=50)) == everything
        assert list(writer.evaluations(campaign, newest=0)) == []
        small = list(writer.evaluations(campaign, workload=SMALL.fingerprint))
        assert small == [told[0], told[3]]
        newest = list(writer.evaluations(campaign, workload=SMALL.fingerprint, newest=1))
        assert newest == [told[3]]
        assert list(writer.evaluations(campaign, workload="none")) == []

    # Identity is content, and a key is stored once

    @pytest.mark.parametrize("again", [candidate(0), candidate(0, n=5), Round(number=0, counts={})])
    def test_a_number_is_stored_once(
        self, writer: StoreWriter, campaign: int, again: Candidate | Round
    ) -> None:
        first: list[Entry] = [Round(number=0, counts={}), candidate(0)]
        writer.append(campaign, first)
        with pytest.raises(InputError, match="stored already"):
            writer.append(campaign, [Event(kind="lost with it"), again])
        assert entries_of(writer, campaign) == first

    def test_an_outcome_is_stored_once(self, writer: StoreWriter, campaign: int) -> None:
        asked, told = candidate(0), measured(candidate(0), 1.0)
        writer.append(campaign, [asked, told])
        with pytest.raises(InputError, match="with the same content"):
            writer.append(campaign, [told])
        with pytest.raises(InputError, match="with other content"):
            writer.append(campaign, [measured(asked, 2.0)])
        assert entries_of(writer, campaign) == [asked, told]

    def test_a_key_twice_in_one_group_is_refused(self, writer: StoreWriter, campaign: int) -> None:
        asked, told = candidate(0), measured(candidate(0), 1.0)
        with pytest.raises(InputError, match="candidate 0 is stored already"):
            writer.append(campaign, [asked, asked])
        with pytest.raises(InputError, match="evaluation of candidate 0 is stored already"):
            writer.append(campaign, [asked, told, told])
        assert entries_of(writer, campaign) == []

    def test_repeats_are_skipped_where_they_are_allowed(
        self, where: str, writer: StoreWriter, campaign: int
    ) -> None:
        entries: list[Entry] = [Round(number=0, counts={}), *asked_and_told(3)]
        writer.append(campaign, entries)
        more = asked_and_told(1, start=3)
        assert writer.append(campaign, [*entries, *more, *more], allow_repeats=True) == 9
        assert entries_of(writer, campaign) == [*entries, *more]
        with pytest.raises(InputError, match="with other content"):
            writer.append(campaign, [measured(candidate(0), 9.0)], allow_repeats=True)

    def test_an_outcome_needs_its_candidate(self, writer: StoreWriter, campaign: int) -> None:
        with pytest.raises(InputError, match="candidate 0 was never asked"):
            writer.append(campaign, [measured(candidate(0), 1.0)])
        writer.append(campaign, [candidate(0)])
        with pytest.raises(InputError, match="another candidate"):
            writer.append(campaign, [measured(candidate(0, n=7), 1.0)])

    def test_a_foreign_workload_is_refused(self, writer: StoreWriter, campaign: int) -> None:
        other = Workload(operator=OPERATOR.fingerprint, axes={"M": 3})
        with pytest.raises(InputError, match="is none of its problem's"):
            writer.append(campaign, [candidate(0, workload=other)])

    @pytest.mark.parametrize(
        "bad",
        [
            Event(kind="e", payload={"x": object()}),
            Event(kind="\ud800"),
            candidate(2**80),
            measured(candidate(0), math.nan),
        ],
    )
    def test_what_cannot_be_stored_is_said_and_nothing_is_written(
        self, writer: StoreWriter, campaign: int, bad: Entry
    ) -> None:
        writer.append(campaign, [candidate(0)])
        with pytest.raises(InputError):
            writer.append(campaign, [Event(kind="lost with it"), bad])
        assert entries_of(writer, campaign) == [candidate(0)]
        assert writer.append(campaign, [measured(candidate(0), 1.0)]) == 2

    def test_a_compilers_broken_bytes_do_not_stop_the_store(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        said = b"error: \xff\xfe in kernel".decode(errors="surrogateescape")
        bad = failed(candidate(0), Status.COMPILE_ERROR)
        evaluation = bad.evaluation
        told = Judged(
            evaluation=type(evaluation)(
                candidate=evaluation.candidate,
                status=evaluation.status,
                failure=evaluation.failure,
                message=said,
            ),
            verdict=bad.verdict,
        )
        writer.append(campaign, [candidate(0), told])
        (stored,) = writer.evaluations(campaign)
        assert stored.evaluation.message == "error: ?? in kernel"

    # Going on

    def test_another_writer_goes_on_where_the_first_stopped(self, where: str) -> None:
        with open_writer(where, create=True) as store:
            campaign = store.begin(SPEC, HERE)
            store.append(campaign, asked_and_told(3))
            store.append(campaign, [candidate(3), candidate(4), measured(candidate(4), 4.0)])
        with open_writer(where) as store:
            with pytest.raises(InputError, match="stored already"):
                store.append(campaign, [candidate(3)])
            assert store.append(campaign, [measured(candidate(3), 3.0)]) == 10
            assert store.append(campaign, asked_and_told(1, start=5)) == 12
            assert [j.evaluation.candidate.number for j in store.evaluations(campaign)] == [
                *range(6)
            ]

    def test_a_reader_sees_what_is_committed_at_once(
        self, where: str, writer: StoreWriter, campaign: int
    ) -> None:
        with open_reader(where) as reader:
            for n in range(3):
                writer.append(campaign, asked_and_told(1, start=n))
                assert reader.campaign().id == campaign
                assert entries_of(reader, campaign) == entries_of(writer, campaign)
                assert reader.size_bytes() > 0

    def test_closing_twice_is_harmless(self, where: str) -> None:
        store = open_writer(where, create=True)
        store.begin(SPEC, HERE)
        store.close()
        store.close()
        reader = open_reader(where)
        reader.close()
        reader.close()
        with open_reader(where) as again:
            assert len(again.campaigns()) == 1

    def test_threads_take_turns(self, where: str, writer: StoreWriter, campaign: int) -> None:
        seen: list[int] = []
        wrong: list[BaseException] = []

        def read() -> None:
            try:
                for _ in range(10):
                    seen.append(len(entries_of(writer, campaign)))
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(20):
            writer.append(campaign, asked_and_told(1, start=n))
        for thread in threads:
            thread.join()
        assert wrong == []
        assert all(n % 2 == 0 for n in seen)

    # Round trips, to the last bit

    @quick
    @given(told=records.judged())
    def test_an_evaluation_comes_back_the_same(self, writer: StoreWriter, told: Judged) -> None:
        campaign = writer.begin(SPEC, HERE)
        asked = told.evaluation.candidate
        writer.append(campaign, [asked, told])
        first, second = entries_of(writer, campaign)
        assert first == asked
        assert second == told
        assert isinstance(first, Candidate)
        assert isinstance(second, Judged)
        assert first.genome.alleles() == asked.genome.alleles()
        assert repr(second.evaluation.measurement) == repr(told.evaluation.measurement)
        rebuilt = Genome(first.genome.route, first.genome.alleles())
        assert rebuilt.fingerprint == asked.genome.fingerprint

    @quick
    @given(entry=st.one_of(records.rounds, records.events, records.conclusions, records.contests()))
    def test_other_entries_come_back_the_same(self, writer: StoreWriter, entry: Entry) -> None:
        campaign = writer.begin(SPEC, HERE)
        writer.append(campaign, [entry])
        (stored,) = entries_of(writer, campaign)
        assert same(stored, entry)

    @quick
    @given(place=records.environments, seed=st.integers())
    def test_an_environment_and_a_seed_come_back_the_same(
        self, writer: StoreWriter, place: Environment, seed: int
    ) -> None:
        spec = CampaignSpec(target="t", device="d", seed=seed, problem=PROBLEM, settings={})
        row = writer.campaign(writer.begin(spec, place))
        assert row.environment == place
        assert row.spec == spec

    # What other campaigns know

    def test_known_is_one_for_each_genome_of_this_place_and_workload(
        self, writer: StoreWriter
    ) -> None:
        first = writer.begin(SPEC, HERE)
        outcomes: list[Judged] = [
            measured(candidate(0), 10.0),
            failed(candidate(1), Status.COMPILE_ERROR),
            failed(candidate(2), Status.TIMEOUT, "too slow"),
            failed(candidate(3), Status.INTERRUPTED, "stopped"),
            measured(candidate(4), 90.0, censored=True),
            measured(candidate(5, workload=SMALL), 1.0),
            failed(candidate(6), Status.WRONG_RESULT, "NaN"),
        ]
        writer.append(first, [j.evaluation.candidate for j in outcomes])
        writer.append(first, outcomes)
        elsewhere = writer.begin(SPEC, ELSEWHERE)
        writer.append(elsewhere, asked_and_told(1, start=9))
        known = list(writer.known(HERE.fingerprint, LARGE.fingerprint))
        assert [k.evaluation for k in known] == [outcomes[n].evaluation for n in (0, 1, 4, 6)]
        assert {k.campaign for k in known} == {first}
        assert list(writer.known("0" * 24, LARGE.fingerprint)) == []

    def test_known_says_the_most_telling_outcome_of_a_genome(self, writer: StoreWriter) -> None:
        outcomes = [
            failed(candidate(0, n=1), Status.LAUNCH_ERROR),
            measured(candidate(1, n=1), 5.0),
            measured(candidate(2, n=1), 9.0, censored=True),
            measured(candidate(3, n=2), 9.0, censored=True),
            failed(candidate(4, n=2), Status.COMPILE_ERROR),
        ]
        campaign = writer.begin(SPEC, HERE)
        writer.append(campaign, [j.evaluation.candidate for j in outcomes])
        writer.append(campaign, outcomes)
        later = writer.begin(SPEC, HERE)
        again = measured(candidate(0, n=1), 6.0)
        writer.append(later, [candidate(0, n=1), again])
        known = list(writer.known(HERE.fingerprint, LARGE.fingerprint))
        assert [(k.campaign, k.evaluation) for k in known] == [
            (campaign, outcomes[3].evaluation),
            (later, again.evaluation),
        ]

    def test_a_campaign_resumed_elsewhere_measures_there(self, where: str) -> None:
        with open_writer(where, create=True) as store:
            campaign = store.begin(SPEC, HERE)
            store.append(campaign, asked_and_told(1))
        with open_writer(where) as store:
            store.environment(ELSEWHERE)
            store.append(campaign, asked_and_told(1, start=1))
            here = list(store.known(HERE.fingerprint, LARGE.fingerprint))
            there = list(store.known(ELSEWHERE.fingerprint, LARGE.fingerprint))
        assert [k.genome for k in here] == [genome(0)]
        assert [k.genome for k in there] == [genome(1)]

    def test_priors_take_turns_between_places_and_workloads(self, writer: StoreWriter) -> None:
        here, there = writer.begin(SPEC, HERE), writer.begin(SPEC, ELSEWHERE)
        told_here = [
            measured(candidate(0), 1.0),  # this place and workload: no prior
            measured(candidate(1, workload=SMALL), 20.0),
            measured(candidate(2, workload=SMALL), 10.0),
            failed(candidate(3, workload=SMALL), Status.TIMEOUT),
        ]
        told_there = [
            measured(candidate(0, n=4), 300.0),
            measured(candidate(1, n=5), 200.0),
            measured(candidate(2, n=6), 100.0, censored=True),
            measured(candidate(3, n=2), 250.0),
        ]
        for campaign, told in ((here, told_here), (there, told_there)):
            writer.append(campaign, [j.evaluation.candidate for j in told])
            writer.append(campaign, told)

        def priors(n: int, before: int | None = None) -> list[Genome]:
            found = writer.priors(
                OPERATOR.fingerprint,
                LARGE.fingerprint,
                not_environment=HERE.fingerprint,
                n=n,
                before=before,
            )
            return [known.genome for known in found]

        assert priors(10) == [genome(n) for n in (5, 2, 1, 4)]
        assert priors(2) == [genome(5), genome(2)]
        assert priors(0) == []
        assert priors(10, before=there) == [genome(2), genome(1)]
        none = writer.priors("0" * 24, LARGE.fingerprint, not_environment="x", n=5)
        assert none == []

    def test_a_genome_is_found_by_the_start_of_its_fingerprint(self, writer: StoreWriter) -> None:
        first, second = writer.begin(SPEC, HERE), writer.begin(SPEC, HERE)
        writer.append(first, asked_and_told(40))
        told = measured(candidate(0, n=7), 3.0)
        writer.append(second, [candidate(0, n=7), told])
        found = writer.find(genome(7).fingerprint[:12])
        assert found == [(first, measured(candidate(7), 107.0)), (second, told)]
        with pytest.raises(InputError, match="no genome's fingerprint starts with 'xyz'"):
            writer.find("xyz")
        with pytest.raises(InputError, match="no genome's fingerprint"):
            writer.find("%")
        with pytest.raises(InputError, match="no genome's fingerprint"):
            writer.find("")
        # Forty fingerprints, sixteen digits: two of them start alike.
        starts = [genome(n).fingerprint[0] for n in range(40)]
        shared = next(start for start in starts if starts.count(start) > 1)
        with pytest.raises(InputError, match=f"'{shared}' is the start of several genomes: "):
            writer.find(shared)

    # How a campaign stands

    def _climb(self, writer: StoreWriter, campaign: int) -> list[Judged]:
        verdicts = [Verdict.ACCEPT, Verdict.KEEP, Verdict.REVERT, Verdict.KEEP]
        told = [measured(candidate(n), 100.0 - n, v) for n, v in enumerate(verdicts)]
        writer.append(campaign, [*(j.evaluation.candidate for j in told), *told])
        return told

    def _best(self, writer: StoreWriter, campaign: int) -> Best | None:
        found = writer.bests(campaign)
        assert len(found) <= 1
        return found[0] if found else None

    def test_the_best_is_the_newest_keep(self, writer: StoreWriter, campaign: int) -> None:
        assert self._best(writer, campaign) is None
        told = self._climb(writer, campaign)
        best = self._best(writer, campaign)
        assert best is not None
        assert (best.number, best.evaluation, best.workload) == (
            3,
            told[3].evaluation,
            LARGE.fingerprint,
        )
        assert (best.audited, best.speedup, best.against) == (False, None, None)

    def test_an_audit_upholds_the_best_and_says_the_speedup(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        self._climb(writer, campaign)
        upheld = trial(3, "audit", upheld=True, ratio=1.7)
        writer.append(campaign, [trial(3, "confirm", upheld=True, ratio=9.0), upheld])
        best = self._best(writer, campaign)
        assert best is not None
        assert (best.number, best.audited) == (3, True)
        assert (best.speedup, best.against) == (upheld.speedup, "baseline:numpy")

    def test_what_an_audit_does_not_uphold_makes_room_for_the_one_before(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        self._climb(writer, campaign)
        writer.append(campaign, [trial(1, "audit", upheld=True, ratio=1.2)])
        writer.append(campaign, [trial(3, "audit", upheld=False)])
        best = self._best(writer, campaign)
        assert best is not None
        assert (best.number, best.audited) == (1, True)
        assert best.speedup is not None
        assert best.speedup.value == 1.2
        writer.append(campaign, [trial(3, "audit", upheld=True, ratio=2.0)])
        restored = self._best(writer, campaign)
        assert restored is not None
        assert (restored.number, restored.audited) == (3, True)

    def test_the_start_stands_where_no_keep_does(self, writer: StoreWriter, campaign: int) -> None:
        self._climb(writer, campaign)
        writer.append(campaign, [trial(n, "audit", upheld=False) for n in (1, 3)])
        best = self._best(writer, campaign)
        assert best is not None
        assert (best.number, best.verdict) == (0, Verdict.ACCEPT)
        writer.append(campaign, [trial(0, "audit", upheld=False)])
        assert self._best(writer, campaign) is None

    def test_every_workload_has_its_own_best_in_the_problems_order(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        told = [
            measured(candidate(0, n=1, workload=SMALL), 5.0, Verdict.KEEP),
            measured(candidate(1, n=1, workload=LARGE), 9.0, Verdict.KEEP),
        ]
        writer.append(campaign, [j.evaluation.candidate for j in told])
        writer.append(campaign, [*told, trial(1, "audit", upheld=True, workload=SMALL)])
        bests = writer.bests(campaign)
        assert [(b.workload, b.number, b.audited) for b in bests] == [
            (LARGE.fingerprint, 1, False),
            (SMALL.fingerprint, 0, True),
        ]

    def test_a_contest_with_another_contender_is_no_speedup_over_the_baseline(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        self._climb(writer, campaign)
        writer.append(campaign, [trial(3, "audit", upheld=True, against=genome(1).fingerprint)])
        best = self._best(writer, campaign)
        assert best is not None
        assert (best.audited, best.speedup) == (True, None)

    def test_counts_are_pairs_of_genome_and_workload(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        told = [
            measured(candidate(0, n=1), 5.0, Verdict.KEEP),
            measured(candidate(1, n=1, workload=SMALL), 5.0),
            measured(candidate(2, n=1), 5.1),
            failed(candidate(3, n=2), Status.TIMEOUT),
            failed(candidate(4, n=3), Status.WRONG_RESULT),
            measured(candidate(5, n=3), 9.0),
            failed(candidate(6, n=4), Status.INTERRUPTED),
            failed(candidate(7, n=5), Status.REJECTED),
        ]
        counts = {"asked": 5, "rejected": 2, "duplicate": 1, "other": 7}
        writer.append(
            campaign,
            [
                Round(number=0, counts={"memory": counts, "fusion": {"asked": 1}}),
                Round(number=1, counts={"memory": counts}),
                *(j.evaluation.candidate for j in told),
                *told,
                trial(1, "confirm", upheld=True),
                trial(1, "confirm", upheld=False),
                trial(1, "audit", upheld=True),
                trial(1, "attribute", upheld=True),
            ],
        )
        found = writer.counts(campaign)
        assert (found.asked, found.rejected, found.duplicate) == (11, 5, 2)
        assert (found.unique, found.failed, found.measured) == (4, 1, 3)
        assert (found.confirmations, found.audits) == (2, 1)
        assert writer.failures(campaign) == {"compiler crashed": 4}

    def test_counts_of_an_empty_campaign_are_zero(self, writer: StoreWriter, campaign: int) -> None:
        assert writer.counts(campaign) == type(writer.counts(campaign))()
        assert writer.shares(campaign) == []
        assert writer.bests(campaign) == []

    def test_shares_add_up(self, writer: StoreWriter, campaign: int) -> None:
        self._climb(writer, campaign)
        writer.append(campaign, [candidate(4)])
        shares = {share.island: share for share in writer.shares(campaign)}
        assert list(shares) == ["memory", "tensor_core"]
        memory, tensor_core = shares.values()
        assert (memory.proposals, memory.evaluations, memory.keeps) == (2, 2, 2)
        assert (tensor_core.proposals, tensor_core.evaluations, tensor_core.keeps) == (3, 2, 0)
        assert memory.keep_share == 1.0
        assert sum(share.proposal_share for share in shares.values()) == pytest.approx(1.0)

    def test_outcomes_come_in_the_order_of_the_verdicts(
        self, writer: StoreWriter, campaign: int
    ) -> None:
        first, second, third = (candidate(number) for number in range(3))
        lost = failed(third, Status.TIMEOUT)
        writer.append(campaign, [first, second, third])
        writer.append(campaign, [measured(second, 9.0, Verdict.KEEP), lost, measured(first, 10.0)])
        found = writer.outcomes(campaign)
        assert [outcome.objective for outcome in found] == [9.0, None, 10.0]
        assert [o.verdict for o in found] == [
            Verdict.KEEP,
            lost.verdict,
            measured(first, 1).verdict,
        ]
        assert [(o.workload, o.island, o.mutation) for o in found] == [
            (c.workload, c.island, c.mutation) for c in (second, third, first)
        ]
        assert list(writer.outcomes(campaign, most=2)) == list(found[:2])

    def test_a_missing_store_is_an_error_that_makes_none(self, where: str) -> None:
        for call in (open_reader, open_writer):
            with pytest.raises(KernelarcError):
                call(where)
        with pytest.raises(KernelarcError):
            open_reader(where)

    def test_axes_of_an_operator_keep_their_kinds(self, writer: StoreWriter, campaign: int) -> None:
        axes = writer.campaign(campaign).spec.problem.operator.axes
        assert axes["L"] == Axis(name="L", kind="expr", expression="2 * M")
