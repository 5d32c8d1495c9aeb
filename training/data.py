"""Token stream on the device: rows of fixed length that begin at a document, with the weight of every target."""

from pathlib import Path

import numpy as np
import torch

from .corpus import CLASS_SHIFT, WEIGHTS


def row_starts(ends: np.ndarray, length: int) -> list[int]:
    """Starts of rows of length+1 tokens. ends: index of each document's last token; the last one ends the stream.

    A row begins at a document; the document that a row cuts begins the next row again, so every text of at most
    `length` tokens is seen whole.
    """
    starts = np.concatenate([[0], ends[:-1] + 1])
    rows, at, last = [], 0, int(ends[-1]) - length
    while at <= last:
        rows.append(at)
        following = int(np.searchsorted(starts, at + length, "right")) - 1  # the document that the row cuts
        at = int(starts[following]) if starts[following] > at else at + length
    return rows


class Stream:
    """Batches of a token file (see corpus.py) that lives on the device. `at` is the next row; it wraps around."""

    def __init__(self, path: Path, eos: int, length: int, device: str):
        raw = np.fromfile(path, np.uint16)
        ends = np.flatnonzero((raw & (1 << CLASS_SHIFT) - 1) == eos)
        rows = row_starts(ends, length)
        self.rows = torch.tensor(rows, device=device)
        self.raw = torch.from_numpy(raw.view(np.int16)).to(device)
        self.weights = torch.tensor(WEIGHTS, device=device)
        self.span = torch.arange(length + 1, device=device)
        self.tokens, self.at, self.passes = len(raw), 0, 0

    def batch(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """-> tokens [rows, length+1] int64, weights [rows, length+1] FP32."""
        if self.at + rows > len(self.rows):
            self.at, self.passes = 0, self.passes + 1
        raw = self.raw[self.rows[self.at : self.at + rows, None] + self.span].int() & 0xFFFF
        self.at += rows
        return (raw & (1 << CLASS_SHIFT) - 1).long(), self.weights[raw >> CLASS_SHIFT]
