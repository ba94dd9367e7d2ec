"""Losses between the outputs of a model and those of its teacher, each a mean over items, differentiable.

divergence        KL(teacher || student) of softmax(logits / T), times T²      (Hinton et al. 2015)
label divergence  the same of every label's sigmoid, for heads whose labels do not exclude each other
cosine distance   1 - cos(student, teacher)
relation          mean square of cos(student_i, student_j) - cos(teacher_i, teacher_j) over pairs i ≠ j
relative error    |student - teacher|² / |teacher|²

Items that do not count (padding, special tokens) are named by a mask and not cut out: shapes then depend on
no value, which is what a CUDA graph needs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_SMALLEST = 1e-12


def divergence(
    student: Tensor,
    teacher: Tensor,
    valid: Tensor | None = None,
    temperature: float = 1.0,
    counted: Tensor | None = None,
) -> Tensor:
    """Return the mean KL divergence of logits (..., classes).

    Arguments:
        valid: (..., classes), the classes that there are.
        counted: (...), the items that count.
    """
    x, y = student / temperature, teacher / temperature
    if valid is not None:  # a finite number: minus infinity times a probability of zero would be NaN
        x, y = (logits.masked_fill(~valid, torch.finfo(logits.dtype).min / 2) for logits in (x, y))
    p, q = functional.log_softmax(y, dim=-1), functional.log_softmax(x, dim=-1)
    terms = p.exp() * (p - q)
    if valid is not None:
        terms = terms.masked_fill(~valid, 0.0)
    return mean(terms.sum(-1), counted) * temperature**2


def label_divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the mean KL divergence of every label's yes and no, of rows of logits (items, labels)."""
    x, y = student / temperature, teacher / temperature
    yes = y.sigmoid() * (functional.logsigmoid(y) - functional.logsigmoid(x))
    no = (-y).sigmoid() * (functional.logsigmoid(-y) - functional.logsigmoid(-x))
    return mean((yes + no).sum(-1)) * temperature**2


def cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean of 1 - cos over rows (items, width)."""
    return mean(1 - functional.cosine_similarity(student, teacher, dim=-1))


def relation(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean squared difference of the cosines between rows (items, width); 0 of a single row."""
    count = len(student)
    if count < 2:
        return student.sum() * 0
    x, y = (functional.normalize(rows, dim=-1) for rows in (student, teacher))
    return (x @ x.T - y @ y.T).square().sum() / (count * (count - 1))


def relative_error(student: Tensor, teacher: Tensor, counted: Tensor | None = None) -> Tensor:
    """Return the mean of |x - y|² / |y|² over vectors (..., width), one of zeros counting as tiny.

    `counted` (...) says which vectors count.
    """
    size = teacher.square().sum(-1)
    return mean((student - teacher).square().sum(-1) / size.clamp_min(_SMALLEST), counted)


def mean(items: Tensor, counted: Tensor | None = None) -> Tensor:
    """Return the mean of the items that count, all by default; 0 of none."""
    if counted is not None:
        return torch.where(counted, items, 0).sum() / counted.sum().clamp_min(1)
    return items.mean() if items.numel() else items.sum()
