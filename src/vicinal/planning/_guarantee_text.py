"""What a predictor guarantees, in words."""

from __future__ import annotations

from vicinal.accounting import Guarantee
from vicinal.planning._plan import IndKNNPlan

_METHODS = {
    "gdp": "individual filter in Gaussian DP (Koskela, Tobaben and Honkela 2023; Smith and "
    "Thakurta 2022), 1 % of delta kept for the integer grid",
    "rdp": "individual Renyi filter (Feldman and Zrnic 2021), converted to (epsilon, delta) by "
    "Balle et al. 2020",
    "label": "individual Renyi filter at one order (Feldman and Zrnic 2021) over releases of the "
    "label alone, converted to (epsilon, delta) by Balle et al. 2020",
}


RECORDS = (
    "each person's records carry that person's subject id (without ids, one record is one person)",
    "features are computed record by record, with nothing learnt from private records",
)
SYSTEM = ("the system's entropy is unpredictable", "time and memory use are not observed")
"""What every guarantee assumes of records, and of the machine."""


def only_release(interactions: int) -> str:
    """Return what is assumed about other interactions with the same subjects."""
    if interactions <= 1:
        return (
            "the subjects take part in no other release (fitting again on the same subjects is "
            "one; inside one process it is refused, elsewhere nobody sees it)"
        )
    return (
        f"the subjects take part in at most {interactions} interactions of this kind, with this "
        "budget and this declaration, which the guarantee covers together, and in no other release"
    )


_MODEL = (
    "a linear model trained with noise in fit, which the same budgets paid for: erasing changes "
    "neither it nor answers given, so whoever leaves stays in the model, and whoever comes later "
    "is not in it"
)


def _model_words(settings: IndKNNPlan) -> tuple[str, ...]:
    """Say what a private model keeps, or why "auto" trained none."""
    if settings.why_no_model:
        return (f"that no private model was trained, as {settings.why_no_model}",)
    if not settings.model_share:
        return ()
    if settings.trainings == 1:
        return (_MODEL,)
    return (
        (
            f"{_MODEL}, until a store trains it again on the people who are there then, at most "
            f"{settings.trainings - 1} times, each paid for by the same budgets"
        ),
    )


def ind_knn_guarantee(settings: IndKNNPlan) -> Guarantee:
    """Return the guarantee of an Ind-KNN estimator over all its answers since ``fit``."""
    void = settings.simulation_seed is not None or settings.interactions == 0
    size = (
        "the number of records, as estimated once with noise"
        if settings.n_records is None
        else "the number of records as declared"
    )
    return Guarantee(
        epsilon=float("inf") if void else settings.epsilon,
        delta=1.0 if void else settings.delta,
        neighbouring="they differ by one subject with all records of that subject, added or "
        "removed, at any time",
        protected=(
            (
                "features, labels and presence of every record, and how much of its budget a "
                "subject has spent, over all answers since fit together, however chosen"
            ),
        ),
        public=(
            "the queries",
            *settings.target.public_facts,
            "the public reference set",
            "all parameters",
            size,
            "all answers given",
            *_model_words(settings),
        ),
        method=_METHODS["label" if settings.label_only else settings.accounting],
        assumptions=(
            *RECORDS,
            "the reference set holds no private record",
            *SYSTEM,
            only_release(settings.interactions),
        ),
        holds=not void,
        public_records=settings.interactions == 0,
    )
