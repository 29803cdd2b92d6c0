"""What several estimators share: checks of inputs, fixed plans, the text of guarantees."""

__all__: list[str] = []
