"""What a predictor guarantees, in the words of the people it protects."""

from __future__ import annotations

from vicinal.accounting.guarantee import Guarantee
from vicinal.predictors.settings import Settings

_METHODS = {
    "gdp": "individual filter in Gaussian DP (Koskela, Tobaben and Honkela 2023; Smith and "
    "Thakurta 2022), 1 % of delta kept for the integer grid",
    "rdp": "individual Renyi filter (Feldman and Zrnic 2021), converted to (epsilon, delta) by "
    "Balle et al. 2020",
    "label": "individual Renyi filter at one order (Feldman and Zrnic 2021) over releases of the "
    "label alone, converted to (epsilon, delta) by Balle et al. 2020",
}


def ind_knn_guarantee(settings: Settings) -> Guarantee:
    """Return the guarantee of an Ind-KNN classifier over all its answers since ``fit``."""
    simulated = settings.seed is not None
    size = (
        "the number of records, as estimated once with noise"
        if settings.n_records is None
        else "the number of records as declared"
    )
    return Guarantee(
        epsilon=float("inf") if simulated else settings.epsilon,
        delta=1.0 if simulated else settings.delta,
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
            "the class names",
            "the public reference set",
            "all parameters",
            size,
            "all answers given",
        ),
        method=_METHODS["label" if settings.label_only else settings.method],
        assumptions=(
            (
                "each person's records carry that person's subject id (without ids, one record is "
                "one person)"
            ),
            "features are computed record by record, with nothing learnt from private records",
            "the reference set holds no private record",
            "the system's entropy is unpredictable",
            "time and memory use are not observed",
            "the people are not part of another release (fitting again on the same people is one)",
        ),
        holds=not simulated,
    )
