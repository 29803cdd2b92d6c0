"""torch's optimizers without torch's compiler, which they load at their first use, for seconds.

Nothing here is compiled by it: what it wraps is called directly, and every number is the same.
"""

from __future__ import annotations

from inspect import unwrap

import torch
from torch.optim import Optimizer


class UncompiledAdamW(torch.optim.AdamW):
    """AdamW: a step is taken without gradients of its own, as torch's wrapper has it."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class UncompiledLBFGS(torch.optim.LBFGS):
    """L-BFGS; its step has no such wrapper."""

    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
