"""The 95% Wilson score interval of a share."""


def wilson(right: int, asked: int, z: float = 1.96) -> tuple[float, float]:
    """-> (low, high); asked must be at least 1."""
    p, d = right / asked, 1 + z * z / asked
    middle, half = (p + z * z / (2 * asked)) / d, z / d * (p * (1 - p) / asked + z * z / (4 * asked * asked)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
