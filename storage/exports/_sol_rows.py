"""Which shapes a solution's table holds, and with which genome."""

from __future__ import annotations

from kernelarc.genomes import Genome, InputError, Workload
from kernelarc.genomes.kernels import KernelRoute
from kernelarc.storage.exports._subject import Subject

ARCH = "sm_90a"


def audited_rows(subject: Subject, route: KernelRoute) -> list[tuple[Workload, Genome]]:
    """Return the workloads whose audited best is of a route, with the genome.

    Raises:
        InputError: A genome is none that the route has: nothing could be built of it.
    """
    genomes = {
        best.workload: best.evaluation.candidate.genome
        for best in subject.bests
        if best.audited and best.evaluation.candidate.genome.route == route.name
    }
    held = [(w, genomes[w.fingerprint]) for w in subject.workloads if w.fingerprint in genomes]
    device = subject.device(ARCH)
    if not all(route.space(workload, device).contains(genome) for workload, genome in held):
        raise not_packaged(subject, route.name)
    return held


def not_packaged(subject: Subject, route: str) -> InputError:
    """Return the error for a best that is of no kernel that comes with this version."""
    return InputError(
        f"campaign {subject.campaign.id}: format sol writes kernels that come with this version of "
        f"kernelarc, and a best of route {route} is none of them: it is of a source of one's own, "
        f"or of another version; search again with this one"
    )
