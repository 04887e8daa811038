# SPDX-License-Identifier: BSD-3-Clause
"""alpha + beta n: what an operation takes at once, and for each byte."""
import dataclasses
import math

GOOD = 0.10       # a line that misses no point by more is good enough
LEAST_POINTS = 3  # two points lie on a line whatever they are
MOST_LINES = 3


@dataclasses.dataclass(frozen=True)
class Line:
    """us = alpha + beta * bytes, from `first` to `last` bytes."""
    first: int
    last: int
    alpha: float
    beta: float
    residual: float  # root of the mean square of the relative errors
    worst: float     # the largest relative error
    points: int

    def at(self, size):
        return self.alpha + self.beta * size

    def bandwidth(self):
        """1e9 bytes a second; infinite where size does not count."""
        return 1e-3 / self.beta if self.beta > 0 else math.inf


def fit_line(points):
    """Least squares of the relative errors: each point counts alike, whatever its size. A negative
    alpha or beta is no time, so the other one alone is fitted then."""
    weights = [1 / time ** 2 for _, time in points]
    w = sum(weights)
    wn = sum(weight * n for weight, (n, _) in zip(weights, points))
    wnn = sum(weight * n * n for weight, (n, _) in zip(weights, points))
    wt = sum(weight * time for weight, (_, time) in zip(weights, points))
    wnt = sum(weight * n * time for weight, (n, time) in zip(weights, points))
    determinant = w * wnn - wn * wn
    alpha, beta = wt / w, 0.0
    if determinant > 1e-12 * w * wnn:
        alpha = (wnn * wt - wn * wnt) / determinant
        beta = (w * wnt - wn * wt) / determinant
        if beta < 0:
            alpha, beta = wt / w, 0.0
        elif alpha < 0:
            alpha, beta = 0.0, wnt / wnn
    errors = [(alpha + beta * n) / time - 1 for n, time in points]
    return Line(points[0][0], points[-1][0], alpha, beta,
                math.sqrt(sum(error ** 2 for error in errors) / len(errors)),
                max(map(abs, errors)), len(points))


def cost(lines):
    return sum(line.residual ** 2 * line.points for line in lines)


def best_split(points, count):
    """`count` lines one after the other that fit best, or None if there are too few points."""
    if count == 1:
        return [fit_line(points)] if len(points) >= LEAST_POINTS else None
    best = None
    for split in range(LEAST_POINTS, len(points) - LEAST_POINTS * (count - 1) + 1):
        rest = best_split(points[split:], count - 1)
        lines = [fit_line(points[:split])] + rest if rest else None
        if lines and (best is None or cost(lines) < cost(best)):
            best = lines
    return best


def fit(points):
    """The fewest lines, at most three, of which none misses a point by more than a tenth; where that
    cannot be had, those that come closest. `points`: (bytes, us); empty where they are too few."""
    points = sorted((n, time) for n, time in points if time > 0)
    best = []
    for count in range(1, MOST_LINES + 1):
        lines = best_split(points, count)
        if lines and (not best or cost(lines) < cost(best)):
            best = lines
        if best and max(line.worst for line in best) <= GOOD:
            break
    return best


def crossing(one, other):
    """Up to which size `one` is quicker than `other`: where the lines between their points cross, on
    logarithmic scales. None: never; infinite: at all sizes. Both are (size, us)."""
    other = dict(other)
    ratios = [(n, math.log(time / other[n])) for n, time in sorted(one) if n in other]
    ahead = [i for i, (_, ratio) in enumerate(ratios) if ratio <= 0]
    if not ahead:
        return None
    if ahead[-1] == len(ratios) - 1:
        return math.inf
    (n, ratio), (next_n, next_ratio) = ratios[ahead[-1]:ahead[-1] + 2]
    part = -ratio / (next_ratio - ratio)
    return math.exp(math.log(n) + part * (math.log(next_n) - math.log(n)))
