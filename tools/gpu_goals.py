"""The speeds that the sm_90a backend is meant to reach, against the medians of a results
folder.  Used by gpu_tables.py."""

LARGE = ["7B", "14B", "32B", "72B"]
FEW, MIDDLE, MANY = (1, 4, 16, 64), (128, 256, 512), (1024, 2048, 4096, 8192)

# figure, pdl, tokens, limit of the geometric mean, limit of every point (None: none)
RATIOS = [
    ("glu", 0, MANY, 0.96, 1.00), ("glu", 0, MIDDLE, 0.98, 1.05), ("glu", 1, MIDDLE, 0.95, 1.05),
    ("glu", 0, FEW, 0.96, 1.02), ("glu", 1, FEW, 0.92, 1.02),
    ("mlp", 0, (1,), 0.86, 1.02), ("mlp", 0, (4,), 0.89, 1.02), ("mlp", 0, (16,), 0.95, 1.02),
    ("mlp", 0, (64,), 0.99, 1.02), ("mlp", 1, (1,), 0.83, 1.02), ("mlp", 1, (4,), 0.86, 1.02),
    ("mlp", 1, (16,), 0.92, 1.02), ("mlp", 1, (64,), 0.96, 1.02),
    ("mlp", 0, (256, 1024, 4096), 0.97, 1.02),
]
READS = [((1, 4), 0.92), ((16,), 0.89), ((64,), 0.86)]  # the least share, 7B and up
# The regret in per cent of which file: its name in words, limit of the geometric mean, and of
# every point.
REGRETS = {"": ("untuned choice", 2.0, 8.0), "_tuned": ("tuned choice", 1.5, None),
           "_extra": ("untuned choice on ten other shapes", 4.0, None)}
QWEN = ["0.5B", "1.5B", "3B", *LARGE]


def verdict(passed):
    return "met" if passed else "**missed**"


def slack(m):
    """A point passes at its limit and this much: that is the noise."""
    return 0.04 if m == 64 else 0.02


def ratio_lines(figures, geomean):
    """figures: {(op, pdl): {(model, m): ratio}} of the choices."""
    for op, pdl, tokens, mean_limit, limit in RATIOS:
        points = {key: value for key, value in figures.get((op, pdl), {}).items()
                  if key[0] in QWEN and key[1] in tokens}
        if not points:
            continue
        name = f"{op}, M = {', '.join(map(str, tokens))}, pdl {pdl}"
        mean, high = geomean(list(points.values())), max(points, key=points.get)
        passed = all(value <= limit + slack(m) for (_, m), value in points.items())
        yield (f"{name}: geometric mean", f"≤ {mean_limit:.2f}", f"{mean:.3f}", len(points),
               verdict(mean <= mean_limit))
        yield (f"{name}: every point", f"≤ {limit:.2f}", f"{points[high]:.3f} at {high[0]}, "
               f"M = {high[1]}", len(points), verdict(passed))


def read_lines(shares):
    """shares: {(model, m): reading kernel's time over ours}, pdl 0."""
    for tokens, limit in READS:
        points = {key: value for key, value in shares.items()
                  if key[0] in LARGE and key[1] in tokens}
        if points:
            low = min(points, key=points.get)
            yield (f"reading alone over glu, M = {', '.join(map(str, tokens))}, 7B and up",
                   f"≥ {limit:.2f}", f"{points[low]:.3f} at {low[0]}, M = {low[1]}", len(points),
                   verdict(points[low] >= limit))


def eager_lines(eager):
    """eager: {op: {(model, m): time over PyTorch eager's in a graph}}."""
    for op, points in eager.items():
        if points:
            high = max(points, key=points.get)
            yield (f"{op} against PyTorch eager in a graph: every point", "< 1",
                   f"{points[high]:.3f} at {high[0]}, M = {high[1]}", len(points),
                   verdict(points[high] < 1))


def regret_lines(regrets, mean):
    """regrets: {kind: {op: {(model, m): per cent}}}, kind as in REGRETS."""
    for kind, (words, mean_limit, limit) in REGRETS.items():
        for op, points in sorted(regrets.get(kind, {}).items(), reverse=True):
            value, high = mean(list(points.values())), max(points, key=points.get)
            name = f"regret of the {words}, {op}"
            yield (f"{name}: geometric mean", f"≤ {mean_limit:.1f} %", f"{value:.2f} %",
                   len(points), verdict(value <= mean_limit))
            if limit is not None:
                yield (f"{name}: every point", f"≤ {limit:.1f} %", f"{points[high]:.1f} % at "
                       f"{high[0]}, M = {high[1]}", len(points), verdict(points[high] <= limit))


def table(lines):
    lines = list(lines)
    if not lines:
        return []
    return ["## Against the goals (a point passes at its limit + 0.02, + 0.04 at M = 64)", "",
            "| what | goal | came | points | |", "|--|--|--|--|--|",
            *("| " + " | ".join(map(str, line)) + " |" for line in lines), ""]
