"""Knowledge transfer: its page, its runs on public benchmarks, methods side by side."""
