"""What a request may say: every field checked, its name in the error, before the engine sees anything."""

from labkit.pocket.protocol.fields import parse
from labkit.pocket.protocol.job import Batch, Job, Limits
from labkit.pocket.protocol.native import read_generate
from labkit.pocket.protocol.openai import read_chat, read_completion

__all__ = ["Batch", "Job", "Limits", "parse", "read_chat", "read_completion", "read_generate"]
