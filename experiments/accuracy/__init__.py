"""Tables of accuracy on public benchmarks: the default, the published algorithm, other methods."""
