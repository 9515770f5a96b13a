"""Open a store read-only: its best, its conclusions and its evaluations as typed values.

Works beside a running campaign. Reads ``example.db``, which ``run_and_resume.py`` writes.
"""

import kernelarc


def main() -> None:
    """Print what the store knows."""
    with kernelarc.open_store("example.db") as store:
        campaign = store.campaign()
        print(f"campaign {campaign.id}: {campaign.spec.target} on {campaign.spec.device}")

        result = kernelarc.result_of(store, campaign.id, store="example.db")
        assert result.best is not None
        print(f"best: {dict(result.best.genome)} at {result.best.objective} {result.best.unit}")

        for _, conclusion in store.conclusions(campaign=campaign.id):
            print(f"{conclusion.kind.value} by {conclusion.island}: {conclusion.why}")

        objectives = [
            judged.evaluation.measurement.objective
            for judged in store.evaluations(campaign.id)
            if judged.evaluation.measurement is not None
        ]
        print(f"{len(objectives)} measured, the slowest {max(objectives)}")
        assert min(objectives) == result.best.objective


if __name__ == "__main__":
    main()
